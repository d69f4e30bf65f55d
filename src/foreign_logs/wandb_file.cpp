// W&B's offline files: run-ID.wandb in a folder offline-run-DATE-ID.

#include <algorithm>

#include "base/error.h"
#include "foreign_logs/protobuf.h"
#include "foreign_logs/readers.h"
#include "foreign_logs/scan.h"
#include "monitor/log_format.h"
#include "monitor/wire.h"

namespace octavo::foreign_logs {
namespace {

namespace frame = monitor::wandb_frame;
constexpr size_t kLongestWandbRecord = size_t{256} << 20;

// The entries of LevelDB's log, joined from their pieces. A damaged block is left out and counted.
class WandbEntries {
 public:
  WandbEntries(std::string_view bytes, Metrics& metrics)
      : bytes_(bytes), metrics_(metrics), at_(frame::kFileHeader.size()) {}

  // False: no further one.
  bool next(std::string& entry) {
    entry.clear();
    for (bool open = false; piece();) {
      if (kind_ == frame::kFull || kind_ == frame::kFirst) {
        if (open) metrics_.count_bad_line();  // its end is missing
        entry.clear();
      } else if (!open) {
        continue;  // its beginning is missing, and was counted
      }
      open = true;
      if (entry.size() + data_.size() > kLongestWandbRecord) {
        metrics_.count_bad_line();
        open = false;
        continue;
      }
      entry += data_;
      if (kind_ == frame::kFull || kind_ == frame::kLast) return true;
    }
    return false;
  }
  bool is_cut() const { return cut_; }

 private:
  bool piece() {
    while (at_ < bytes_.size()) {
      const uint64_t room = frame::kBlock - at_ % frame::kBlock;
      if (room < frame::kPieceHeader) {
        at_ += room;
        continue;
      }
      if (bytes_.size() - at_ < frame::kPieceHeader) return cut_ = true, false;
      const std::string_view head = bytes_.substr(at_);
      const uint64_t length = little_endian(head.substr(4), 2);
      if (length <= room - frame::kPieceHeader && length > head.size() - frame::kPieceHeader)
        return cut_ = true, false;
      kind_ = head[6];
      if (length > room - frame::kPieceHeader || kind_ < frame::kFull || kind_ > frame::kLast ||
          little_endian(head, 4) != monitor::crc32(head.substr(6, 1 + length))) {
        const bool padding = little_endian(head, 7) == 0;
        if (!padding) metrics_.count_bad_line();
        at_ += room;
        continue;
      }
      data_ = head.substr(frame::kPieceHeader, length);
      at_ += frame::kPieceHeader + length;
      return true;
    }
    return false;
  }

  std::string_view bytes_, data_;
  Metrics& metrics_;
  size_t at_;
  char kind_ = 0;
  bool cut_ = false;
};

// A value that is no number (a histogram, a text) has its name alone.
void take_item(std::string_view bytes, std::vector<Field>& row, Metrics& metrics) {
  MessageReader reader(bytes);
  std::string name;
  std::string_view json;
  while (reader.next()) {
    if (reader.field() == monitor::wandb_item::kKey && !reader.bytes().empty())
      name = reader.bytes();
    if (reader.field() == monitor::wandb_item::kNestedKey)
      name += (name.empty() ? "" : ".") + std::string(reader.bytes());
    if (reader.field() == monitor::wandb_item::kValueJson) json = reader.bytes();
  }
  if (json.size() >= 2 && json.front() == '"' && json.back() == '"')  // "NaN", "Infinity"
    json = json.substr(1, json.size() - 2);
  if (const std::optional<double> number = whole_number_text(json))
    row.push_back({std::move(name), *number});
  else
    metrics.saw(name);
}

void take_history(std::string_view bytes, Rows& rows, Metrics& metrics) {
  std::vector<Field> row;
  std::optional<int64_t> step;
  MessageReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == monitor::wandb_history::kItem) take_item(reader.bytes(), row, metrics);
    if (reader.field() == monitor::wandb_history::kStep) {
      step = 0;  // which protobuf does not write
      for (MessageReader inner(reader.bytes()); inner.next();)
        if (inner.field() == monitor::wandb_history::kStepNumber)
          step = static_cast<int64_t>(inner.number());
    }
  }
  if (reader.is_damaged()) return metrics.count_bad_line();
  const auto is_step = [](const Field& field) { return field.name == "_step"; };
  if (step && *step >= 0 && std::ranges::none_of(row, is_step))
    row.push_back({"_step", static_cast<double>(*step)});
  rows.take(row);
}

}  // namespace

bool is_wandb_file(std::string_view head) {
  return head.starts_with(frame::kFileHeader.substr(0, 6));
}

void read_wandb_file(std::string_view bytes, const std::string& name, Metrics& metrics) {
  WandbEntries entries(bytes, metrics);
  Rows rows(metrics);
  for (std::string entry; entries.next(entry);) {
    MessageReader record(entry);
    while (record.next())
      if (record.field() == monitor::wandb_record::kHistory)
        take_history(record.bytes(), rows, metrics);
    if (record.is_damaged()) metrics.count_bad_line();
  }
  if (entries.is_cut())
    metrics.remark(str(name, ": ends in the middle of a record, as when a run still writes it"));
}

}  // namespace octavo::foreign_logs

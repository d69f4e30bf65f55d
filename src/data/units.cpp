#include "data/units.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/arrow_rows.h"
#include "data/json_rows.h"

namespace octavo::data {

UnitReader::UnitReader(const std::vector<Source>& sources, UnitPosition start, UnitLimits limits,
                       std::vector<std::string> fields, UnitPosition end)
    : sources_(sources), at_(start), limits_(limits), fields_(std::move(fields)), end_(end) {
  OCTAVO_ASSERT(start.file >= sources.size() || start.offset < sources[start.file].bytes);
}

uint64_t UnitReader::file_end() const {
  return end_.file == at_.file ? end_.offset : sources_[at_.file].bytes;
}

void UnitReader::open() {
  const Source& source = sources_[at_.file];
  units_ = 0;
  if (source.format == SourceFormat::kJson) {
    rows_ = std::make_unique<JsonRowReader>(source, at_.offset, at_.line, limits_.line_bytes);
    return;
  }
  if (source.format == SourceFormat::kParquet || source.format == SourceFormat::kArrow) {
    rows_ = open_arrow_rows(source, fields_, at_.line, limits_.line_bytes);
    return;
  }
  file_ = open_input(source);
  if (source.format == SourceFormat::kText && source.bytes > limits_.text_bytes && at_.offset == 0)
    log_warn(str("data: ", source.path.string(), " is larger than ", limits_.text_bytes >> 20,
                 " MiB: still one document, but tokenized in parts cut at line ends, about every ",
                 limits_.part_bytes >> 20, " MiB"));
}

// Shortens a part of a text file to end behind a newline or, when it has none, between two
// characters.
void UnitReader::cut_text(std::string& text) const {
  size_t end = text.rfind('\n');
  if (end != std::string::npos) {
    text.resize(end + 1);
    return;
  }
  log_warn(str("data: ", sources_[at_.file].path.string(), ": no line end in the ", text.size(),
               " bytes from ", at_.offset, ", cut between two characters"));
  end = text.size();
  while (end > 1 && (static_cast<unsigned char>(text[end - 1]) & 0xc0) == 0x80) --end;
  if (end > 1) text.resize(end - 1);  // in front of the last lead byte
}

// Shortens to whole lines; a line longer than the batch is read on to its end.
void UnitReader::fill_lines(std::string& text) const {
  const Source& source = sources_[at_.file];
  const uint64_t file_end = this->file_end();
  size_t end = text.rfind('\n');
  while (end == std::string::npos && at_.offset + text.size() < file_end) {
    if (text.size() >= limits_.line_bytes)
      fail(ExitCode::kDamaged, "data", source.path.string(), ":", at_.line,
           ": wanted lines of at most ", limits_.line_bytes,
           " bytes, found a longer one; split the document");
    const size_t before = text.size();
    text += file_->read(at_.offset + before,
                        std::min(limits_.batch_bytes, file_end - at_.offset - before));
    end = text.find('\n', before);
  }
  if (end != std::string::npos && at_.offset + text.size() < file_end) text.resize(end + 1);
}

// The last unit that is read of a file: an object on a server may have been replaced since the
// first one. What is read at once is of one content.
void UnitReader::check_one_content(const Unit& unit) const {
  const Source& source = sources_[unit.start.file];
  const bool at_once =
      !rows_ && units_ == 1 &&
      (source.format == SourceFormat::kText || unit.text.size() <= limits_.batch_bytes);
  if (!at_once) check_unchanged(source);
}

void UnitReader::end_file() {
  file_.reset();
  rows_.reset();
  at_ = {.file = at_.file + 1};
}

Unit UnitReader::next_rows() {
  Unit unit{.start = at_};
  RowBatch batch = rows_->next(limits_.batch_bytes);
  unit.text = std::move(batch.lines);
  unit.places = std::move(batch.places);
  unit.ends_file = batch.ends_file;
  unit.source_bytes = (batch.ends_file ? sources_[at_.file].bytes : batch.next_offset) - at_.offset;
  at_.offset = batch.next_offset;
  at_.line = batch.next_row;
  if (unit.ends_file) {
    check_one_content(unit);
    end_file();
  }
  return unit;
}

std::optional<Unit> UnitReader::next() {
  if (at_.file >= sources_.size() || at_.file > end_.file ||
      (at_.file == end_.file && at_.offset >= end_.offset))
    return std::nullopt;
  if (!file_ && !rows_) open();
  ++units_;
  if (rows_) return next_rows();
  const Source& source = sources_[at_.file];
  const bool lines = source.format == SourceFormat::kJsonl;
  Unit unit{.start = at_};
  const uint64_t part = source.bytes > limits_.text_bytes ? limits_.part_bytes : source.bytes;
  unit.text = file_->read(at_.offset,
                          lines ? std::min(limits_.batch_bytes, file_end() - at_.offset) : part);
  if (lines) {
    fill_lines(unit.text);
  } else if (at_.offset + unit.text.size() < source.bytes) {
    cut_text(unit.text);
  }
  unit.source_bytes = unit.text.size();
  at_.offset += unit.text.size();
  unit.ends_file = at_.offset == source.bytes;
  if (at_.offset >= file_end()) check_one_content(unit);
  if (unit.ends_file)
    end_file();
  else if (lines && at_.line > 0)
    at_.line += static_cast<uint64_t>(std::count(unit.text.begin(), unit.text.end(), '\n'));
  return unit;
}

}  // namespace octavo::data

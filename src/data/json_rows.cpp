#include "data/json_rows.h"

#include "base/error.h"

namespace octavo::data {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;

bool is_json_space(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

JsonRowReader::JsonRowReader(const Source& source, uint64_t offset, uint64_t row,
                             uint64_t max_row_bytes)
    : file_(open_input(source)),
      name_(source.path.string()),
      bytes_(source.bytes),
      row_(row),
      max_row_bytes_(max_row_bytes) {
  start();
  if (offset == 0) return;
  done_ = false;
  window_.clear();
  at_ = 0;
  window_begin_ = offset;
}

void JsonRowReader::damaged(const std::string& what) const {
  fail(ExitCode::kDamaged, "data", name_, ": row ", row_, " (byte ", window_begin_ + at_,
       "): ", what, "; repair the file, or make it JSON lines");
}

int JsonRowReader::peek() {
  if (at_ == window_.size()) {
    window_begin_ += window_.size();
    at_ = 0;
    window_ = window_begin_ < bytes_ ? file_->read(window_begin_, kWindowBytes) : std::string();
    if (window_.empty()) return kEnd;
  }
  return static_cast<unsigned char>(window_[at_]);
}

int JsonRowReader::skip_space() {
  while (is_json_space(peek())) ++at_;
  return peek();
}

void JsonRowReader::start() {
  if (file_->read(0, 3) == "\xef\xbb\xbf") window_begin_ = 3;  // a byte order mark
  const int first = skip_space();
  array_ = first == '[';
  if (array_) {
    ++at_;
    if (skip_space() == ']') {
      ++at_;
      if (skip_space() != kEnd) damaged("wanted the end of the file behind the array");
      done_ = true;
    }
  } else if (first == kEnd) {
    done_ = true;
  }
}

void JsonRowReader::scan_string(std::string& out) {
  out += '"';
  ++at_;
  for (;;) {
    const int c = peek();
    if (c == kEnd) damaged("the file ends inside a string");
    if (c < 0x20) damaged("wanted escaped control characters in strings, found a bare one");
    out += static_cast<char>(c);
    ++at_;
    if (c == '"') return;
    if (c == '\\') {
      const int escaped = peek();
      if (escaped < 0x20) damaged("wanted a character behind the backslash");
      out += static_cast<char>(escaped);
      ++at_;
    }
    if (out.size() > max_row_bytes_) damaged(str("wanted rows below ", max_row_bytes_, " bytes"));
  }
}

// One value, with every line end outside of strings as a space.
RowLocation JsonRowReader::scan_value(std::string& out) {
  RowLocation place{.begin = window_begin_ + at_};
  std::string value;
  uint64_t depth = 0;
  for (;;) {
    const int c = peek();
    if (c == '"') {
      scan_string(value);
    } else if (depth == 0 && (c == kEnd || is_json_space(c) || c == ',' || c == ']' || c == '}')) {
      break;
    } else if (c == kEnd) {
      damaged("the file ends inside the row");
    } else {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      value += is_json_space(c) ? ' ' : static_cast<char>(c);
      ++at_;
    }
    const bool closed = c == '"' || c == '}' || c == ']';
    if (depth == 0 && closed) break;
    if (value.size() > max_row_bytes_) damaged(str("wanted rows below ", max_row_bytes_, " bytes"));
  }
  if (value.empty()) damaged("wanted a JSON value, found none");
  out += value;
  out += '\n';
  place.end = window_begin_ + at_;
  return place;
}

bool JsonRowReader::more_rows() {
  const int c = skip_space();
  if (!array_) return c != kEnd;
  if (c == ',') {
    ++at_;
    skip_space();
    return true;
  }
  if (c != ']') damaged("wanted a comma or the end of the array behind the row");
  ++at_;
  if (skip_space() != kEnd) damaged("wanted the end of the file behind the array");
  return false;
}

RowBatch JsonRowReader::next(uint64_t bytes) {
  RowBatch batch;
  while (!done_ && batch.lines.size() < bytes) {
    batch.places.push_back(scan_value(batch.lines));
    done_ = !more_rows();
    ++row_;
  }
  if (done_ && !batch.places.empty()) batch.places.back().end = bytes_;
  batch.next_offset = window_begin_ + at_;
  batch.next_row = row_;
  batch.ends_file = done_;
  return batch;
}

}  // namespace octavo::data

#pragma once
// A .json file as rows: the elements of an array, or values one behind the other (JSON lines under
// another name, or a single object). The file is scanned, never held: only where values begin and
// end is found here, whoever takes the rows parses them.

#include <memory>

#include "data/input_file.h"
#include "data/row_reader.h"

namespace octavo::data {

class JsonRowReader : public RowReader {
 public:
  // From the row number `row` that starts at `offset`; 0 and 1 for the beginning.
  JsonRowReader(const Source& source, uint64_t offset, uint64_t row, uint64_t max_row_bytes);
  RowBatch next(uint64_t bytes) override;

 private:
  static constexpr int kEnd = -1;
  int peek();
  int skip_space();  // the next character, not taken
  void start();
  RowLocation scan_value(std::string& out);
  void scan_string(std::string& out);
  bool more_rows();  // takes what stands between two rows
  [[noreturn]] void damaged(const std::string& what) const;

  std::unique_ptr<InputFile> file_;
  std::string name_;
  uint64_t bytes_, row_, max_row_bytes_;
  std::string window_;
  uint64_t window_begin_ = 0;
  size_t at_ = 0;  // in the window
  bool array_ = false, done_ = false;
};

}  // namespace octavo::data

#pragma once
// Rows of formats that are not lines: each becomes one line of JSON, so that all that comes behind
// knows one form of a row only.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace octavo::data {

struct RowLocation {
  uint64_t begin = 0,
           end = 0;  // bytes of the file; estimated where rows have no place of their own
};

struct RowBatch {
  std::string lines;  // one JSON value and a newline each
  std::vector<RowLocation> places;
  // Where the next batch begins: a byte of the file and the number (from 1) of the row.
  uint64_t next_offset = 0, next_row = 1;
  bool ends_file = false;
};

class RowReader {
 public:
  virtual ~RowReader() = default;
  // Whole rows, about `bytes` of them. The cuts depend on content and `bytes` only.
  virtual RowBatch next(uint64_t bytes) = 0;
};

}  // namespace octavo::data

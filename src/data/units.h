#pragma once
// Inputs cut into units of work that one thread tokenizes at a time: a text file (or a part of a
// large one), or a batch of rows as JSON lines. Cuts depend only on the content and the limits,
// never on threads, so the token stream is the same however it is computed, and may be taken up
// again at any unit.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/input_file.h"
#include "data/row_reader.h"
#include "data/sources.h"

namespace octavo::data {

struct UnitLimits {
  uint64_t text_bytes = uint64_t{64} << 20;   // a longer text file is cut into parts, at line ends
  uint64_t part_bytes = uint64_t{4} << 20;    // of such a file
  uint64_t batch_bytes = uint64_t{2} << 20;   // of JSONL lines
  uint64_t line_bytes = uint64_t{256} << 20;  // longest JSONL line
};

// Where a unit starts.
struct UnitPosition {
  uint64_t file = 0, offset = 0;
  uint64_t line = 1;  // number of its first line or row; 0: not known
};

struct Unit {
  UnitPosition start;
  std::string text;
  std::vector<RowLocation> places;  // of the rows; none when they stand in the file as in `text`
  uint64_t source_bytes = 0;
  bool ends_file = false;
};

class UnitReader {
 public:
  // `fields`: what is read of rows in columns; none: all. `end`: where to stop, a file's begin or
  // that of a line of JSONL.
  UnitReader(const std::vector<Source>& sources, UnitPosition start, UnitLimits limits = {},
             std::vector<std::string> fields = {}, UnitPosition end = {.file = UINT64_MAX});
  std::optional<Unit> next();

 private:
  void open();
  Unit next_rows();
  void end_file();
  void cut_text(std::string& text) const;
  void fill_lines(std::string& text) const;
  void check_one_content(const Unit& unit) const;
  uint64_t file_end() const;  // of the file at at_, or where to stop in it

  const std::vector<Source>& sources_;
  UnitPosition at_;
  UnitLimits limits_;
  std::vector<std::string> fields_;
  UnitPosition end_;
  std::unique_ptr<InputFile> file_;  // of the file at at_, once it is open; or
  std::unique_ptr<RowReader> rows_;
  uint64_t units_ = 0;  // of that file, so far
};

}  // namespace octavo::data

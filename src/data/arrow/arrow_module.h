#pragma once
// What liboctavo_arrow.so offers. It holds the code that needs Arrow's libraries, which are large:
// they are loaded when the first Parquet or Arrow file is opened (arrow_rows.cpp), not before.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/input_file.h"
#include "data/row_reader.h"

namespace octavo::data {

struct ArrowRequest {
  std::string name;  // in messages
  std::unique_ptr<InputFile> file;
  uint64_t bytes = 0;
  bool parquet = false;             // else Arrow IPC, file or stream
  std::vector<std::string> fields;  // that are read; none: all
  uint64_t first_row = 0;
  uint64_t max_row_bytes = 0;
};

}  // namespace octavo::data

extern "C" {
// Throws octavo::Error; the caller owns the result.
octavo::data::RowReader* octavo_arrow_open(octavo::data::ArrowRequest* request);
}

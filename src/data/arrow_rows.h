#pragma once
// Parquet and Arrow files as rows, by way of liboctavo_arrow.so.

#include <memory>
#include <string>
#include <vector>

#include "data/row_reader.h"
#include "data/sources.h"

namespace octavo::data {

// `fields`: what is read of the rows; none: all. `row`: number of the first, from 1.
std::unique_ptr<RowReader> open_arrow_rows(const Source& source,
                                           const std::vector<std::string>& fields, uint64_t row,
                                           uint64_t max_row_bytes);

}  // namespace octavo::data

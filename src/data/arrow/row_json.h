#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <string>

namespace octavo::data {

// Appends a row as a JSON object. Values of types that no text or message has become null.
void append_row_json(const arrow::RecordBatch& batch, int64_t row, std::string& out);

}  // namespace octavo::data

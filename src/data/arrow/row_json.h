#pragma once

#include <arrow/record_batch.h>

#include <cstdint>
#include <string>

namespace octavo::data {

// Appends a row as a JSON object. Values of types that no text or message has become null. A few
// bytes can describe a row without end (lists of nothings, dictionaries of dictionaries): soon
// after `most` bytes it breaks off, and who called sees by its length that it is not whole.
void append_row_json(const arrow::RecordBatch& batch, int64_t row, uint64_t most, std::string& out);

}  // namespace octavo::data

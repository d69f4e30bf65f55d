#pragma once
// Record batches of Parquet and of both Arrow formats, one after the other.

#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <memory>
#include <string>
#include <vector>

#include "data/arrow/input_adapter.h"

namespace octavo::data {

struct PlacedBatch {
  std::shared_ptr<arrow::RecordBatch> rows;  // null: no more
  uint64_t first_row = 0;
  uint64_t begin = 0, end = 0;  // about where it stands in the file
};

// From the start of the file, except that batches that end before `first_row` may be left out.
class Batches {
 public:
  virtual ~Batches() = default;
  virtual arrow::Result<PlacedBatch> next() = 0;
};

struct BatchRequest {
  std::shared_ptr<InputAdapter> file;
  uint64_t bytes = 0, first_row = 0;
  std::vector<std::string> fields;  // none: all
  arrow::MemoryPool* pool = nullptr;
};

arrow::Result<std::unique_ptr<Batches>> open_parquet(const BatchRequest& request);
arrow::Result<std::unique_ptr<Batches>> open_ipc(const BatchRequest& request);

// `bytes` * `part` / `whole` without overflow.
inline uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole) {
  return whole == 0 ? 0
                    : static_cast<uint64_t>(static_cast<unsigned __int128>(bytes) * part / whole);
}

// A batch behind `at` rows of a file that says it has `total`; moves `at` behind it.
inline arrow::Result<PlacedBatch> place(std::shared_ptr<arrow::RecordBatch> rows, uint64_t& at,
                                        uint64_t total, uint64_t bytes) {
  const uint64_t first = at;
  at += static_cast<uint64_t>(rows->num_rows());
  if (at > total) return arrow::Status::Invalid("the file says ", total, " rows and has more");
  return PlacedBatch{std::move(rows), first, share_of(bytes, first, total),
                     share_of(bytes, at, total)};
}

}  // namespace octavo::data

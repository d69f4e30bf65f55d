#include <arrow/util/iterator.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>

#include "data/arrow/batches.h"

namespace octavo::data {
namespace {

// Few rows at a time: a row may be a whole book.
constexpr int64_t kBatchRows = 64;
constexpr int64_t kBufferBytes = 1 << 20;

// The leaf columns below the wanted fields.
std::vector<int> wanted_columns(const parquet::SchemaDescriptor& schema,
                                const std::vector<std::string>& fields) {
  std::vector<int> columns;
  for (int i = 0; i < schema.num_columns(); ++i) {
    const auto& root = schema.GetColumnRoot(i)->name();
    if (fields.empty() || std::find(fields.begin(), fields.end(), root) != fields.end())
      columns.push_back(i);
  }
  return columns;
}

// Row group by row group; of each, a few pages of each column are in memory.
class ParquetBatches : public Batches {
 public:
  ParquetBatches(std::unique_ptr<parquet::arrow::FileReader> reader, const BatchRequest& request)
      : reader_(std::move(reader)), bytes_(request.bytes) {
    const auto metadata = reader_->parquet_reader()->metadata();
    columns_ = wanted_columns(*metadata->schema(), request.fields);
    groups_ = metadata->num_row_groups();
    rows_ = static_cast<uint64_t>(std::max<int64_t>(metadata->num_rows(), 0));
    for (; group_ < groups_; ++group_) {
      const auto rows =
          static_cast<uint64_t>(std::max<int64_t>(metadata->RowGroup(group_)->num_rows(), 0));
      if (at_ + rows > request.first_row) break;
      at_ += rows;
    }
  }

  arrow::Result<PlacedBatch> next() override {
    for (;;) {
      if (!batches_) {
        if (group_ >= groups_) {
          if (at_ != rows_)
            return arrow::Status::Invalid("the file says ", rows_, " rows and has ", at_);
          return PlacedBatch{};
        }
        ARROW_ASSIGN_OR_RAISE(batches_, reader_->GetRecordBatchReader({group_++}, columns_));
      }
      ARROW_ASSIGN_OR_RAISE(auto rows, batches_->Next());
      if (!rows) {
        batches_.reset();
        continue;
      }
      return place(std::move(rows), at_, rows_, bytes_);
    }
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  uint64_t bytes_, rows_ = 0, at_ = 0;
  int groups_ = 0, group_ = 0;
  std::vector<int> columns_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
};

}  // namespace

arrow::Result<std::unique_ptr<Batches>> open_parquet(const BatchRequest& request) {
  parquet::ReaderProperties properties(request.pool);
  properties.enable_buffered_stream();
  properties.set_buffer_size(kBufferBytes);
  parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
  arrow_properties.set_batch_size(kBatchRows);
  arrow_properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(request.file, properties));
  ARROW_ASSIGN_OR_RAISE(auto reader,
                        builder.memory_pool(request.pool)->properties(arrow_properties)->Build());
  return std::make_unique<ParquetBatches>(std::move(reader), request);
}

}  // namespace octavo::data

#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>

#include <algorithm>

#include "data/arrow/batches.h"

namespace octavo::data {
namespace {

constexpr std::string_view kFileMagic = "ARROW1";

// Which top-level fields to read; all when none of the wanted is there, so that the rows can say
// what they lack.
std::vector<int> wanted_fields(const arrow::Schema& schema,
                               const std::vector<std::string>& fields) {
  std::vector<int> wanted;
  for (int i = 0; i < schema.num_fields(); ++i)
    if (std::find(fields.begin(), fields.end(), schema.field(i)->name()) != fields.end())
      wanted.push_back(i);
  return wanted;
}

arrow::ipc::IpcReadOptions ipc_options(arrow::MemoryPool* pool) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  return options;
}

class IpcFileBatches : public Batches {
 public:
  IpcFileBatches(std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader, uint64_t rows,
                 uint64_t bytes)
      : reader_(std::move(reader)), rows_(rows), bytes_(bytes) {}

  arrow::Result<PlacedBatch> next() override {
    if (index_ >= reader_->num_record_batches()) return PlacedBatch{};
    ARROW_ASSIGN_OR_RAISE(auto rows, reader_->ReadRecordBatch(index_++));
    return place(std::move(rows), at_, rows_, bytes_);
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  uint64_t rows_, bytes_, at_ = 0;
  int index_ = 0;
};

// A stream does not say how many rows it has: a batch stands where it was read.
class IpcStreamBatches : public Batches {
 public:
  IpcStreamBatches(std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader,
                   std::shared_ptr<InputAdapter> file)
      : reader_(std::move(reader)), file_(std::move(file)) {}

  arrow::Result<PlacedBatch> next() override {
    ARROW_ASSIGN_OR_RAISE(const int64_t begin, file_->Tell());
    std::shared_ptr<arrow::RecordBatch> rows;
    ARROW_RETURN_NOT_OK(reader_->ReadNext(&rows));
    if (!rows) return PlacedBatch{};
    ARROW_ASSIGN_OR_RAISE(const int64_t end, file_->Tell());
    const uint64_t first = at_;
    at_ += static_cast<uint64_t>(rows->num_rows());
    return PlacedBatch{std::move(rows), first, static_cast<uint64_t>(begin),
                       static_cast<uint64_t>(end)};
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  std::shared_ptr<InputAdapter> file_;
  uint64_t at_ = 0;
};

}  // namespace

arrow::Result<std::unique_ptr<Batches>> open_ipc(const BatchRequest& request) {
  auto options = ipc_options(request.pool);
  ARROW_ASSIGN_OR_RAISE(const auto head, request.file->ReadAt(0, int64_t{kFileMagic.size()}));
  if (std::string_view(*head) != kFileMagic) {
    ARROW_ASSIGN_OR_RAISE(auto reader,
                          arrow::ipc::RecordBatchStreamReader::Open(request.file, options));
    options.included_fields = wanted_fields(*reader->schema(), request.fields);
    ARROW_RETURN_NOT_OK(request.file->Seek(0));
    ARROW_ASSIGN_OR_RAISE(reader, arrow::ipc::RecordBatchStreamReader::Open(request.file, options));
    return std::make_unique<IpcStreamBatches>(std::move(reader), request.file);
  }
  ARROW_ASSIGN_OR_RAISE(auto reader,
                        arrow::ipc::RecordBatchFileReader::Open(request.file, options));
  options.included_fields = wanted_fields(*reader->schema(), request.fields);
  ARROW_ASSIGN_OR_RAISE(reader, arrow::ipc::RecordBatchFileReader::Open(request.file, options));
  ARROW_ASSIGN_OR_RAISE(const int64_t rows, reader->CountRows());
  return std::make_unique<IpcFileBatches>(
      std::move(reader), static_cast<uint64_t>(std::max<int64_t>(rows, 0)), request.bytes);
}

}  // namespace octavo::data

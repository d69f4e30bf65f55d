#include "data/arrow/arrow_module.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "data/arrow/batches.h"
#include "data/arrow/row_json.h"

namespace octavo::data {
namespace {

// More than any sound row group of 64 rows needs, and less than a machine has. A small file may ask
// for little: what unpacks to more is a bomb.
int64_t memory_limit(uint64_t file_bytes) {
  constexpr uint64_t kLeast = uint64_t{192} << 20, kMost = uint64_t{4} << 30, kPerByte = 16;
  return static_cast<int64_t>(std::min(kMost, kLeast + kPerByte * std::min(file_bytes, kMost)));
}

// Text that packs better than this is no text: a dictionary's one entry in a billion rows.
uint64_t most_text(uint64_t file_bytes) {
  constexpr uint64_t kLeast = uint64_t{64} << 20, kPerByte = 1000;
  return kLeast + kPerByte * std::min(file_bytes, UINT64_MAX / kPerByte / 2);
}

class ArrowRowReader : public RowReader {
 public:
  explicit ArrowRowReader(ArrowRequest request)
      : name_(std::move(request.name)),
        bytes_(request.bytes),
        max_row_bytes_(request.max_row_bytes),
        row_(request.first_row),
        pool_(arrow::system_memory_pool(), memory_limit(request.bytes)) {
    guard([&]() -> arrow::Status {
      const BatchRequest batches{
          .file = std::make_shared<InputAdapter>(std::move(request.file), request.bytes),
          .bytes = request.bytes,
          .first_row = request.first_row,
          .fields = std::move(request.fields),
          .pool = &pool_};
      ARROW_ASSIGN_OR_RAISE(batches_, request.parquet ? open_parquet(batches) : open_ipc(batches));
      return advance();
    });
  }

  RowBatch next(uint64_t bytes) override {
    RowBatch result;
    guard([&]() -> arrow::Status {
      while (current_.rows && result.lines.size() < bytes) {
        const auto rows = static_cast<uint64_t>(current_.rows->num_rows());
        const uint64_t inside = row_ - current_.first_row, span = current_.end - current_.begin;
        const size_t before = result.lines.size();
        append_row_json(*current_.rows, static_cast<int64_t>(inside),
                        std::min(max_row_bytes_, most_text(bytes_)), result.lines);
        result.lines += '\n';
        if (result.lines.size() - before > max_row_bytes_)
          return arrow::Status::Invalid("wanted rows below ", max_row_bytes_, " bytes");
        produced_ += result.lines.size() - before;
        if (produced_ > most_text(bytes_))
          return arrow::Status::Invalid("a file of ", bytes_, " bytes that unpacks to more than ",
                                        most_text(bytes_), " bytes of rows");
        result.places.push_back({current_.begin + share_of(span, inside, rows),
                                 current_.begin + share_of(span, inside + 1, rows)});
        ++row_;
        ARROW_RETURN_NOT_OK(advance());
      }
      return arrow::Status::OK();
    });
    result.ends_file = current_.rows == nullptr;
    if (result.ends_file && !result.places.empty()) result.places.back().end = bytes_;
    if (!result.ends_file) {
      const auto rows = static_cast<uint64_t>(current_.rows->num_rows());
      result.next_offset =
          current_.begin + share_of(current_.end - current_.begin, row_ - current_.first_row, rows);
    }
    result.next_row = row_ + 1;
    return result;
  }

 private:
  // The batch that holds row_, or none.
  arrow::Status advance() {
    while (!current_.rows ||
           row_ >= current_.first_row + static_cast<uint64_t>(current_.rows->num_rows())) {
      ARROW_ASSIGN_OR_RAISE(current_, batches_->next());
      if (!current_.rows) return arrow::Status::OK();
      ARROW_RETURN_NOT_OK(current_.rows->ValidateFull());
      if (current_.end < current_.begin || current_.end > bytes_)
        return arrow::Status::Invalid("a batch that ends outside of the file");
    }
    return arrow::Status::OK();
  }

  // Whatever Arrow finds wrong is damage of the file.
  template <typename Action>
  void guard(Action action) const {
    std::string what;
    try {
      const arrow::Status status = action();
      if (status.ok()) return;
      what = status.ToString();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      what = error.what();
    }
    fail(ExitCode::kDamaged, "data", name_, ": row ", row_ + 1, " cannot be read: ", what,
         "; restore the file from its source");
  }

  std::string name_;
  uint64_t bytes_, max_row_bytes_, row_, produced_ = 0;
  arrow::CappedMemoryPool pool_;
  std::unique_ptr<Batches> batches_;
  PlacedBatch current_;
};

}  // namespace
}  // namespace octavo::data

octavo::data::RowReader* octavo_arrow_open(octavo::data::ArrowRequest* request) {
  return std::make_unique<octavo::data::ArrowRowReader>(std::move(*request)).release();
}

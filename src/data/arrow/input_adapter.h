#pragma once
// One of our inputs as Arrow reads files.

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "data/input_file.h"

namespace octavo::data {

class InputAdapter : public arrow::io::RandomAccessFile {
 public:
  InputAdapter(std::unique_ptr<InputFile> file, uint64_t bytes)
      : file_(std::move(file)), bytes_(static_cast<int64_t>(bytes)) {
    set_mode(arrow::io::FileMode::READ);
  }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Result<int64_t> GetSize() override { return bytes_; }
  arrow::Status Seek(int64_t position) override {
    if (position < 0 || position > bytes_)
      return arrow::Status::Invalid("a place outside of the file: ", position);
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t got, ReadAt(at_, bytes, out));
    at_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, bytes));
    at_ += buffer->size();
    return buffer;
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const auto buffer, ReadAt(position, bytes));
    std::memcpy(out, buffer->data(), static_cast<size_t>(buffer->size()));
    return buffer->size();
  }
  // Sizes come from the file: never more than it has.
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    if (position < 0 || position > bytes_ || bytes < 0)
      return arrow::Status::Invalid("a range outside of the file: ", bytes, " from ", position);
    return arrow::Buffer::FromString(
        file_->read(static_cast<uint64_t>(position),
                    static_cast<uint64_t>(std::min(bytes, bytes_ - position))));
  }

 private:
  std::unique_ptr<InputFile> file_;
  int64_t bytes_, at_ = 0;
  bool closed_ = false;
};

}  // namespace octavo::data

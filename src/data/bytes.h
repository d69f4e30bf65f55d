#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace octavo::data {

// Bytes that are written once, without zeros before.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), end_(size) {}
  std::span<std::byte> all() const { return {data_.get() + begin_, end_ - begin_}; }
  size_t size() const { return end_ - begin_; }
  void narrow(size_t begin, size_t size) {
    begin_ += begin;
    end_ = begin_ + size;
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace octavo::data

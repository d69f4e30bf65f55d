#pragma once
// Documents into samples of one length: each goes whole into the open sample that it fills best.
// The number of open samples is bounded, so memory is too, whatever comes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace octavo::data {

struct PackedSample {
  std::vector<int32_t> tokens;
  std::vector<size_t> ends;  // of its documents
};

class Packer {
 public:
  static constexpr size_t kMaxOpen = 128;
  // `share`: whether documents may share a sample.
  Packer(uint64_t length, bool share) : length_(length), max_open_(share ? kMaxOpen : 0) {}
  // 1 to `length` tokens. Gives a sample that is full, or had to make room.
  std::optional<PackedSample> add(std::span<const int32_t> document);
  size_t open_samples() const { return open_.size(); }
  std::vector<PackedSample> take_all();  // oldest first

 private:
  PackedSample take(size_t index);

  uint64_t length_;
  size_t max_open_;
  std::vector<PackedSample> open_;  // oldest first
};

}  // namespace octavo::data

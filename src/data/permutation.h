#pragma once
// A keyed permutation of [0, size), computed on the fly (a Feistel network with cycle walking):
// constant memory at any size, O(1) seek, invertible.

#include <cstdint>

namespace octavo::data {

constexpr uint64_t kMaxSamples = uint64_t{1} << 62;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // keys of epochs and windows are so far apart

class Permutation {
 public:
  // 1 <= size <= 2^62.
  Permutation(uint64_t size, uint64_t key);
  uint64_t operator()(uint64_t index) const;  // [0, size) -> [0, size)
  uint64_t inverse(uint64_t value) const;
  uint64_t size() const { return size_; }

 private:
  uint64_t encrypt(uint64_t block) const;
  uint64_t decrypt(uint64_t block) const;

  uint64_t size_;
  uint64_t keys_[6];
  int half_bits_;
};

}  // namespace octavo::data

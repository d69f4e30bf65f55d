#pragma once
// Arrays and numbers for the tests of kernels.

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/portable.h"

namespace octavo::kernels {

// Ascending, and ten random orders of blocks and threads.
inline const std::vector<uint64_t> kOrders = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

// Of exactly `count` elements, so that the address sanitizer sees a step beyond them; `shift`
// elements behind an address that is a multiple of 16, so that there is no way to read 128 bits.
template <class T>
class Array {
 public:
  explicit Array(int64_t count = 0, int shift = 0)
      : values_(static_cast<size_t>(count + shift)), shift_(shift) {}
  T* data() { return values_.data() + shift_; }
  const T* data() const { return values_.data() + shift_; }
  int64_t size() const { return static_cast<int64_t>(values_.size()) - shift_; }
  T& operator[](int64_t i) { return values_[static_cast<size_t>(i + shift_)]; }
  const T& operator[](int64_t i) const { return values_[static_cast<size_t>(i + shift_)]; }
  bool operator==(const Array&) const = default;

 private:
  std::vector<T> values_;
  int shift_;
};

class Numbers {
 public:
  explicit Numbers(uint64_t seed) : engine_(seed) {}
  float normal(float sigma = 1) { return std::normal_distribution<float>(0, sigma)(engine_); }
  uint32_t bits() { return static_cast<uint32_t>(engine_()); }
  template <class T>
  void fill(Array<T>& array, float sigma = 1, float mean = 0) {
    for (int64_t i = 0; i < array.size(); ++i) narrow_to(mean + normal(sigma), array[i]);
  }

 private:
  std::mt19937_64 engine_;
};

// The distance between BF16 numbers of this size.
inline double bf16_step(double value) {
  return std::ldexp(1.0, std::max(std::ilogb(std::abs(value) + 1e-38), -126) - 7);
}

}  // namespace octavo::kernels

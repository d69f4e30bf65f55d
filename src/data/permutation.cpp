#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/random.h"

namespace octavo::data {

// A balanced Feistel network permutes [0, 4^half_bits), at most four times the size; walking along
// its cycles until a value falls below the size makes it a permutation of [0, size).
Permutation::Permutation(uint64_t size, uint64_t key) : size_(size) {
  if (size == 0 || size > kMaxSamples)
    fail(ExitCode::kUsage, "data", "wanted between 1 and 2^62 samples to shuffle, found ", size,
         "; prepare more text or shorten max_seq_length");
  const int bits = std::bit_width(size - 1);
  half_bits_ = std::max(1, (bits + 1) / 2);
  for (uint64_t& round_key : keys_) round_key = mix64(key += kGolden);
}

uint64_t Permutation::encrypt(uint64_t block) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = block >> half_bits_, right = block & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mix64(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::decrypt(uint64_t block) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = block >> half_bits_, right = block & mask;
  for (int round = 5; round >= 0; --round) {
    const uint64_t previous = right ^ (mix64(left ^ keys_[round]) & mask);
    right = left;
    left = previous;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  OCTAVO_ASSERT(index < size_);
  do index = encrypt(index);
  while (index >= size_);
  return index;
}

uint64_t Permutation::inverse(uint64_t value) const {
  OCTAVO_ASSERT(value < size_);
  do value = decrypt(value);
  while (value >= size_);
  return value;
}

}  // namespace octavo::data

#pragma once
// Philox4x32-10 as base/random.h has it, for kernels.

#include "kernels/portable.h"

namespace octavo::kernels {

struct FourWords {
  uint32_t at[4];
};

OCTAVO_ON_BOTH inline FourWords random_words(uint64_t seed, uint64_t stream, uint64_t counter) {
  auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  auto c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace octavo::kernels

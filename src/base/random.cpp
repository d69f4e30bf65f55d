#include "base/random.h"

#include <cmath>
#include <numbers>

namespace octavo {

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return mix64(hash);
}

void fill_normal(float* out, int64_t count, float sigma, uint64_t seed, uint64_t stream) {
  // Box-Muller over pairs of 32-bit uniforms; four values per counter.
  for (int64_t i = 0; i < count; i += 4) {
    const auto bits = philox(seed, stream, static_cast<uint64_t>(i / 4));
    for (int64_t pair = 0; pair < 2 && i + 2 * pair < count; ++pair) {
      const double u = (bits[2 * pair] + 1.0) * 0x1p-32;  // (0, 1]
      const double angle = 2 * std::numbers::pi * bits[2 * pair + 1] * 0x1p-32;
      const double radius = sigma * std::sqrt(-2 * std::log(u));
      out[i + 2 * pair] = static_cast<float>(radius * std::cos(angle));
      if (i + 2 * pair + 1 < count)
        out[i + 2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
}

}  // namespace octavo

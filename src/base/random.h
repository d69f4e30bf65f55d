#pragma once
// Counter-based random numbers: Philox4x32-10. A value is a pure function of (seed, stream,
// counter), so nothing has to be saved but the counter, and any element can be drawn on any thread
// or rank.

#include <array>
#include <cstdint>
#include <string_view>

namespace octavo {

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t counter);

// Mixes 64 bits (splitmix64's finaliser): hashing of keys and names, not a generator.
uint64_t mix64(uint64_t x);
// A stream number for a name, so that each use draws from numbers of its own.
uint64_t stream_of(std::string_view name);

inline float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Fills [0, count) with N(0, sigma), element i depending only on (seed, stream, i).
void fill_normal(float* out, int64_t count, float sigma, uint64_t seed, uint64_t stream);

}  // namespace octavo

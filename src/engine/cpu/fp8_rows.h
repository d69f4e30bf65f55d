#pragma once
// Quantizing one row of BF16 values, by Highway: what fp8_kernels.cpp puts together into matrices.

#include <cstddef>
#include <cstdint>

#include "fp8/recipe.h"

namespace octavo::engine::cpu {

constexpr uint16_t kInfinityBits = 0x7F80;

// The largest magnitude as BF16 bits; NaN counts as larger than infinity.
uint16_t largest_in(const uint16_t* x, int64_t n);
// largest[i] = max(largest[i], |x[i]|), as bits.
void raise_largest(const uint16_t* x, int64_t n, uint16_t* largest);

// Where a row's codes and values go; each may be null.
struct RowTarget {
  fp8::Format format;
  uint8_t* codes;
  uint16_t* values;
  RowTarget after(int64_t n) const {
    return {format, codes == nullptr ? nullptr : codes + n,
            values == nullptr ? nullptr : values + n};
  }
};

// A row that is safe takes the quick way: every element is a number, none rounds past the largest
// value, and every decode factor is the exact reciprocal of its encode factor, or 1 for all, or all
// that it meets are zeros.
void encode_one(const uint16_t* x, size_t n, const fp8::Scale& scale, bool safe,
                const RowTarget& target);
void encode_each(const uint16_t* x, size_t n, const float* encode, const float* decode, bool safe,
                 const RowTarget& target);

// The row in blocks of `block` elements, all of them safe, and their largest magnitudes.
void encode_blocks(const uint16_t* x, size_t n, size_t block, const float* encode,
                   const float* decode, const RowTarget& target);
void largest_in_blocks(const uint16_t* x, size_t n, size_t block, uint16_t* largest);

// Codes to BF16 values.
void decode_one(fp8::Format format, const uint8_t* codes, size_t n, float decode, uint16_t* values);
void decode_each(fp8::Format format, const uint8_t* codes, size_t n, const float* decode,
                 uint16_t* values);
// Two rows of codes with the same factors (null: 1 for all): a value of the first, one of the
// second, …. n: a multiple of 64.
void decode_pair(fp8::Format format, const uint8_t* first, const uint8_t* second, size_t n,
                 const float* decode, uint16_t* values);

// Power-of-two scales of blocks from the bits of their largest magnitudes, while these are in the
// middle of the range or zero; there all recipes agree: the largest value is 1.75 * 2^k, so with
// amax = 2^e (1 + m / 128) the quotient is at least 2^(k - e) while m <= 96, else only 2^(k - 1 -
// e). A zero gets the scale of `zero`. False when a magnitude is at the ends of the range or not
// finite: then the results mean nothing.
bool usual_scales(const uint16_t* largest, size_t n, fp8::Format format, const fp8::Scale& zero,
                  float* encode, float* decode);

}  // namespace octavo::engine::cpu

#pragma once
// Quantizing rows of BF16 values to NVFP4, by Highway: what fp4_kernels.cpp puts together into
// matrices. Of numbers alone: where there is a NaN the plain loops of fp8/nvfp4.cpp run.

#include <cstddef>
#include <cstdint>

namespace octavo::engine::cpu {

// The most lanes that blocks of 16 allow; on wider machines the plain loops run.
size_t fp4_lanes();

// The Hadamard transform of 16 rows of n values each, along the columns; rows are `stride` apart in
// both. `largest` (n) receives the largest magnitudes of the results, as bits.
void rotate_band(const uint16_t* x, size_t stride, size_t n, uint16_t* out, uint16_t* largest);

// The largest magnitude of every 16 values, as bits; n: a multiple of 16.
void largest_of_16(const uint16_t* x, size_t n, uint16_t* largest);

// The scales of blocks from their largest magnitudes and that of the matrix: `decode` is the
// block's scale, an E4M3 number, `encode` what a value is multiplied with; `codes`, which may be
// null, receives the scale's code.
void fp4_scales(const uint16_t* largest, size_t n, float amax, float* encode, float* decode,
                uint8_t* codes);

struct Fp4Row {
  const uint16_t* x;
  size_t n;
  const float *encode, *decode;  // of every element, or of every 16
  const uint8_t* draws;          // of every element; null: to nearest
  uint8_t* codes;                // may be null, as may
  uint16_t* values;              // codes times decode; may be x
};
void encode_fp4_each(const Fp4Row& row);
void encode_fp4_blocks(const Fp4Row& row);  // n: a multiple of 16

// Two rows of codes in one of bytes, the first in the low nibbles; and the values of such a row:
// two rows of them, or a value of the first, one of the second, …. `decode`: of every element.
void pack_fp4(const uint8_t* first, const uint8_t* second, size_t n, uint8_t* packed);
void unpack_fp4(const uint8_t* packed, size_t n, const float* decode, uint16_t* first,
                uint16_t* second);
void unpack_fp4_pairs(const uint8_t* packed, size_t n, const float* decode, uint16_t* values);

// The draws of elements, as fp8::Nvfp4Rounding numbers them: n from element `first` on, both
// multiples of 16.
void fp4_draws(uint64_t seed, uint64_t stream, uint64_t first, size_t n, uint8_t* draws);
// Of 16 rows of n values that are columns of the matrix that is counted: draws [16, n]. Column c is
// blocks c * `step` + `band` of 16.
void fp4_band_draws(uint64_t seed, uint64_t stream, uint32_t step, uint32_t band, size_t n,
                    uint8_t* draws);

}  // namespace octavo::engine::cpu

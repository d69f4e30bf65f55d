#pragma once
// NVFP4: E2M1 values, a scale in E4M3 for each block of 16 and one in FP32 for the whole matrix. In
// plain loops, the definition, as Transformer Engine has it (cast/nvfp4/core_nvfp4.cuh):
//
//   S     = min(2688 / amax, FLT_MAX), 1 when amax or S is 0     2688 = 448 * 6
//   scale = E4M3(amax of the block * (S * (1 / 6)))              rounded to nearest, saturates
//   code  = E2M1(x * min(1 / (scale * (1 / S)), FLT_MAX))        saturates; NaN becomes 6
//
// all in FP32, in this order. A value is worth code * scale / S. A block whose scale is 0 is worth
// 0.
//
//         which GEMM       left                              right
//         forward          x, 1x16                           w, 16x16
//         input gradient   dy, 1x16, stochastic              w, 16x16
//         weight gradient  dy^T, rotated, 1x16, stochastic   x^T, rotated, 1x16
//
// Blocks lie along the sum: a column copy is that of the transposed matrix, quantized by itself.
//
//         E2M1 codes: 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4 and 6; 8 is the sign.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8/formats.h"

namespace octavo::fp8 {

inline constexpr std::array<float, 8> kE2M1Values = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

constexpr float decode_e2m1(uint8_t code) {
  const float magnitude = kE2M1Values[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}
// To nearest, ties to the even code; saturates at 6. The sign of zero is kept; NaN becomes +6.
uint8_t encode_e2m1(float value);
// Stochastic rounding with 8 random bits, as Blackwell's cvt.rs has it: up when the distance from
// the value below, in 1/256 steps and rounded down, is more than 255 - bits. So up in
// floor(256 f) of 256 cases: a mean bias of -1/512 of a step.
uint8_t encode_e2m1_stochastic(float value, uint8_t random_bits);

inline constexpr int64_t kNvfp4Block = 16;

// How many rows share a scale; always 16 columns do.
enum class Nvfp4Blocks : uint8_t { k1x16, k16x16 };

// Element i, counted over the whole matrix, uses byte i % 16 of philox(seed, stream, i / 16).
struct Nvfp4Rounding {
  bool stochastic = false;
  uint64_t seed = 0, stream = 0;
};

struct Nvfp4 {
  float amax = 0;               // of the numbers that are quantized; NaN is none
  std::vector<uint8_t> codes;   // [rows, columns], one in a byte
  std::vector<uint8_t> scales;  // E4M3 codes, [rows or ceil(rows / 16), ceil(columns / 16)]
};

// Row-major [rows, columns]; blocks at the edges may be smaller.
Nvfp4 quantize_nvfp4(std::span<const float> values, int64_t rows, int64_t columns,
                     Nvfp4Blocks blocks, const Nvfp4Rounding& rounding = {});

// What a GEMM multiplies: code * scale, a BF16 number always. What is left, 1 / S of both operands,
// goes to the sum: nvfp4_alpha().
std::vector<float> scaled_values(const Nvfp4& quantized, int64_t rows, int64_t columns,
                                 Nvfp4Blocks blocks);
// amax_a * amax_b / (36 * 448^2) in FP32, in Transformer Engine's order.
float nvfp4_alpha(float amax_a, float amax_b);

// Two codes in a byte, the even element in the low nibble; an odd number ends in zero.
std::vector<uint8_t> packed(std::span<const uint8_t> codes);

// The random Hadamard transform of every 16 values: x * diag(s) * H / 4 with Sylvester's H and the
// signs that Transformer Engine has for all layers; BF16 numbers in and out. Rotating both operands
// of a sum leaves it as it is. The length is a multiple of 16.
std::vector<float> rotated(std::span<const float> values);

}  // namespace octavo::fp8

#pragma once
// The sums of Hopper's FP8 tensor cores, bit for bit: what wgmma does with E4M3 and E5M2 operands.
// They are narrower than FP32. The model is MMA-Sim's (microsoft/MMA-Sim, arXiv 2511.10909), which
// its authors compared with the hardware:
//
//   One instruction adds 32 products to an accumulator. Every product a b has the exponent
//   e(a) + e(b), of significands that are not normalised (the product's is below 4, a subnormal's
//   below 1). With E the largest exponent among the 33 terms, each term is cut towards zero at
//   2^(E - 13). The sum of what is left is exact, and is cut again, towards zero, to a number with
//   8 bits of exponent and 13 fraction bits: the accumulator.
//
// A GEMM keeps that accumulator for its whole sum ("fast accumulation": forward passes of
// Transformer Engine and torchao), or adds it to an FP32 register after every 128 terms and starts
// anew ("split accumulator": their backward passes, and every GEMM with scales of 128 terms).

#include <cstdint>
#include <span>

#include "fp8/formats.h"

namespace octavo::fp8 {

inline constexpr int64_t kHopperGroup = 32;       // terms of one instruction
inline constexpr int64_t kHopperPromotion = 128;  // terms between two promotions to FP32

enum class Promotion : uint8_t { kNever, kEvery128 };

// Rows of codes along the sum. A sum that is no multiple of 32 ends in zeros, as the hardware's
// loads have it.
struct HopperOperand {
  Format format = Format::kE4M3;
  std::span<const uint8_t> codes;  // [rows, terms], row-major
  int64_t rows = 0, terms = 0;
  // Decode factors of every 128 terms of each row, [rows, ceil(terms / 128)]; empty: all are 1. For
  // Promotion::kEvery128 alone: they multiply what is promoted, in FP32. Powers of two, so that it
  // does not matter how the products are rounded.
  std::span<const float> factors;
};

// sum of a[i] b[i]; both have one row. NaN when an operand is NaN or infinities cancel.
float hopper_dot(const HopperOperand& a, const HopperOperand& b, Promotion promotion);

// c[i, j] = sum over k of a[i, k] b[j, k], for rows i of a in [first, last). `c`: [last - first,
// b.rows].
void hopper_gemm(const HopperOperand& a, const HopperOperand& b, Promotion promotion, int64_t first,
                 int64_t last, std::span<float> c);

}  // namespace octavo::fp8

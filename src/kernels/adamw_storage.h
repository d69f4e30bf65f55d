#pragma once
// How AdamW's state is kept in 16 or 8 bits, and how it is rounded on the way there. These scalar
// functions define every bit: kernels/adamw.h calls them, the SIMD kernels must give the same.
//
// Rounding to the nearest would stop learning: a step of a weight, and the share (1 - beta) by
// which a moment moves, are mostly smaller than half the distance to the next value, and would be
// rounded away every time. Stochastic rounding takes the upper neighbour with the probability that
// makes the mean right, so that small changes arrive over many steps.
//
// One random word an element (philox(seed, stream, i / 4), word i % 4): its lower half rounds the
// weight, its upper half both moments. Sharing a half does no harm: each result is unbiased, and
// when both moments are rounded up together their quotient is nearer to the truth.
//
// Eight bits, blocks of 128 elements with one FP32 scale (1/32 byte an element), largest magnitude
// of the block = 448:
// - First moment: E4M3. It has a sign, is the mean of many gradients, and 3 bits of mantissa are
//   noise of some 5% that the mean over the next steps takes away again. What is below the smallest
//   code (2^-9, 230,000 times below the block's largest) becomes zero or that code: right on
//   average.
// - Second moment: its square root s, which has half the binades, so that a block's range fits. It
//   has no sign: the top bit is a fourth bit of mantissa (the low seven bits are the E4M3 code at
//   or below s, the top bit adds half the way to the next).
//   - Rounded so that the mean of s * s, not of s, is right: beta2 acts on v, and noise in s would
//     raise the mean of v by its variance at every step, without end where 1 - beta2 is smaller.
//   - Never to zero unless v is zero: m / (sqrt(v) + eps) would be a step of m / eps. What is below
//     kMinSecond, twice the first moment's smallest code, becomes that: its step is too small, and
//     a first moment that was rounded up, in the same block, still meets a root of its own size.
//   - The noise that stays: v's deviation is about 0.026 / sqrt(1 - beta2) of it: 12% for beta2
//     0.95, 26% for 0.99, 85% for 0.999 (half of that in the root). kNoisyBeta2 is where to warn.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/portable.h"

namespace octavo::adamw {

constexpr int64_t kBlock = 128;  // elements that share a scale
constexpr double kNoisyBeta2 = 0.995;

constexpr int64_t block_count(int64_t elements) {
  return (elements + kBlock - 1) / kBlock;
}

// Sixteen random bits each.
constexpr uint32_t weight_bits(uint32_t word) {
  return word & 0xFFFF;
}
constexpr uint32_t moment_bits(uint32_t word) {
  return word >> 16;
}
constexpr uint32_t kNoDraw = 0x8000;  // in place of random bits: (nearly) round to nearest

constexpr float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// The sixteen bits that BF16 lacks are the probability, exactly. NaN stays NaN.
constexpr uint16_t to_bf16(float value, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>((bits | 0x400000) >> 16);
  return static_cast<uint16_t>((bits + random) >> 16);
}

// What a block's codes are multiplied with, from the bits of its largest magnitude (as integers,
// NaN is the largest of all and shows). Never so small that its reciprocal is not a number.
constexpr float block_scale(uint32_t largest_bits) {
  const float scale = std::bit_cast<float>(largest_bits) * (1.0f / 448);
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

constexpr uint32_t kSmallestNormal = 0x3C800000;  // 2^-6, as float32 bits
constexpr uint32_t kBelowNormals = 120u << 23;    // a code's exponent counts from here
constexpr uint32_t kMaxFirst = 0x7E;              // 448
constexpr uint32_t kMinSecond = 4;                // 2^-8
constexpr uint32_t kMaxSecond = 252;              // 448, with four bits of mantissa

// E4M3, as fp8/formats.h has it, without its table: a kernel has none.
constexpr float value_of_first(uint32_t magnitude) {
  if (magnitude > kMaxFirst) return std::bit_cast<float>(0x7FC00000u);
  return magnitude < 8 ? static_cast<float>(magnitude) * 0x1p-9f
                       : std::bit_cast<float>((magnitude << 20) + kBelowNormals);
}
constexpr float decode_first(uint8_t code, float scale) {
  const float value = value_of_first(code & 0x7Fu);
  return ((code & 0x80u) != 0 ? -value : value) * scale;
}
// `scaled`: divided by the block's scale.
constexpr uint8_t encode_first(float scaled, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(scaled), magnitude = bits & 0x7FFFFFFF;
  uint32_t code = 0;
  if (magnitude < kSmallestNormal)  // steps of 2^-9, in 1/2^16
    code = (static_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p25f + 0.5f) + random) >> 16;
  else  // 20 bits of mantissa are lost; the random ones are their upper 16
    code = (magnitude - kBelowNormals + (random << 4 | 8)) >> 20;
  return static_cast<uint8_t>(std::min(code, kMaxFirst) | (bits >> 24 & 0x80));
}

// Of the codes with four bits of mantissa, in the order of their values.
constexpr float value_of_second(uint32_t number) {
  return number < 16 ? static_cast<float>(number) * 0x1p-10f
                     : std::bit_cast<float>((number << 19) + kBelowNormals);
}
constexpr uint32_t number_of_second(uint8_t code) {
  return (code & 0x7Fu) << 1 | code >> 7;
}
// The second moment itself.
constexpr float decode_second(uint8_t code, float scale) {
  const float root = value_of_second(number_of_second(code)) * scale;
  return root * root;
}
// `scaled`: the root, divided by the block's scale.
constexpr uint8_t encode_second(float scaled, uint32_t random) {
  if (scaled == 0) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled);
  const uint32_t below = std::min(bits < kSmallestNormal ? static_cast<uint32_t>(scaled * 0x1p10f)
                                                         : (bits - kBelowNormals) >> 19,
                                  kMaxSecond);
  const float low = value_of_second(below), high = value_of_second(below + 1);
  const float share = (static_cast<float>(random) + 0.5f) * 0x1p-16f;
  const bool up = share * ((high - low) * (high + low)) < (scaled - low) * (scaled + low);
  const uint32_t number = std::min(std::max(below + (up ? 1 : 0), kMinSecond), kMaxSecond);
  return static_cast<uint8_t>(number >> 1 | (number & 1) << 7);
}

// The step's constants, the same for all implementations. lr_hat and eps_hat have the bias
// corrections folded in: m / c1 / (sqrt(v / c2) + eps)
//   = (sqrt(c2) / c1) m / (sqrt(v) + eps sqrt(c2)).
struct Factors {
  float beta1, rest1, beta2, rest2, grad_scale, keep, lr_hat, eps_hat;
};
template <class Hyper>
Factors factors_of(const Hyper& h) {
  const double correction1 = 1 - std::pow(static_cast<double>(h.beta1), h.step);
  const double correction2 = 1 - std::pow(static_cast<double>(h.beta2), h.step);
  const auto root2 = static_cast<float>(std::sqrt(correction2));
  return {.beta1 = h.beta1,
          .rest1 = 1 - h.beta1,
          .beta2 = h.beta2,
          .rest2 = 1 - h.beta2,
          .grad_scale = h.grad_scale,
          .keep = 1 - h.lr * h.weight_decay,
          .lr_hat = h.lr * root2 / static_cast<float>(correction1),
          .eps_hat = h.eps * root2};
}

// One element. The additions to the moments are fused; nothing else is.
struct Element {
  float w, m, v;
};
OCTAVO_ON_BOTH inline Element advance(const Element& old, float gradient, const Factors& f) {
  const float g = gradient * f.grad_scale;
  const float m = std::fma(old.m, f.beta1, g * f.rest1);
  const float v = std::fma(old.v, f.beta2, (g * g) * f.rest2);
  const float step = (f.lr_hat * m) / (std::sqrt(v) + f.eps_hat);
  return {old.w * f.keep - step, m, v};
}

}  // namespace octavo::adamw

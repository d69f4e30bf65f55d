#include "fp8/accumulator.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace octavo::fp8 {
namespace {

constexpr int kFractionBits = 13;  // of the accumulator, and where terms are cut
// Of zeros: below every exponent that a product can have, so that they never decide where terms
// are cut.
constexpr int32_t kNoExponent = -1000;

// Of a significand that is not normalised: subnormals have the smallest normal's.
constexpr int32_t exponent_of(Format format, uint8_t code) {
  const Layout l = layout(format);
  const int32_t magnitude = code & 0x7F;
  return magnitude == 0 ? kNoExponent : std::max(magnitude >> l.mantissa_bits, 1) - l.bias;
}

bool is_finite(Format format, uint8_t code) {
  return (code & 0x7F) <= layout(format).max_code;
}

// Rows taken apart once, padded with zeros to whole instructions.
struct Rows {
  int64_t padded = 0;  // terms
  std::vector<float> values;
  std::vector<int32_t> exponents;
  std::vector<char> finite;  // of each row: no NaN, no infinity

  const float* values_of(int64_t row) const { return values.data() + row * padded; }
  const int32_t* exponents_of(int64_t row) const { return exponents.data() + row * padded; }
};

Rows take_apart(const HopperOperand& m, int64_t first, int64_t last) {
  Rows rows;
  rows.padded = (m.terms + kHopperGroup - 1) / kHopperGroup * kHopperGroup;
  const auto count = static_cast<size_t>((last - first) * rows.padded);
  rows.values.assign(count, 0);
  rows.exponents.assign(count, kNoExponent);
  for (int64_t row = first; row < last; ++row) {
    bool finite = true;
    for (int64_t k = 0; k < m.terms; ++k) {
      const uint8_t code = m.codes[static_cast<size_t>(row * m.terms + k)];
      const auto to = static_cast<size_t>((row - first) * rows.padded + k);
      rows.values[to] = decode(m.format, code);
      rows.exponents[to] = exponent_of(m.format, code);
      finite = finite && is_finite(m.format, code);
    }
    rows.finite.push_back(finite ? 1 : 0);
  }
  return rows;
}

// 2^power, a normal number.
float power_of_two(int32_t power) {
  return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
}

// One instruction: `c`, an accumulator, and 32 products. Every step is exact in float32 but the
// conversions to integers, which cut towards zero: a product of two FP8 values has 8 bits, an
// accumulator 14, and the sum of 33 terms below 2^15 has 21.
float add_group(float c, const float* a, const int32_t* a_exponents, const float* b,
                const int32_t* b_exponents) {
  int32_t largest =
      c == 0 ? kNoExponent : static_cast<int32_t>(std::bit_cast<uint32_t>(c) >> 23 & 0xFF) - 127;
  for (int64_t k = 0; k < kHopperGroup; ++k)
    largest = std::max(largest, a_exponents[k] + b_exponents[k]);
  if (largest < kNoExponent / 2) return 0;  // nothing but zeros
  const float unit = power_of_two(kFractionBits - largest);
  auto sum = static_cast<int32_t>(c * unit);
  for (int64_t k = 0; k < kHopperGroup; ++k) sum += static_cast<int32_t>(a[k] * b[k] * unit);
  const auto magnitude = static_cast<uint32_t>(std::abs(sum));
  const int excess = static_cast<int>(std::bit_width(magnitude)) - (kFractionBits + 1);
  const auto kept = static_cast<float>(excess > 0 ? magnitude >> excess << excess : magnitude);
  return (sum < 0 ? -kept : kept) * power_of_two(largest - kFractionBits);
}

// Of operands with a NaN or an infinity, so that it is one of them: the hardware's are those of
// plain arithmetic.
float special_dot(const HopperOperand& a, int64_t i, const HopperOperand& b, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < a.terms; ++k)
    sum += static_cast<double>(decode(a.format, a.codes[static_cast<size_t>(i * a.terms + k)])) *
           decode(b.format, b.codes[static_cast<size_t>(j * b.terms + k)]);
  return static_cast<float>(sum);
}

float factor_of(const HopperOperand& m, int64_t row, int64_t block) {
  const int64_t blocks = (m.terms + kHopperPromotion - 1) / kHopperPromotion;
  return m.factors.empty() ? 1 : m.factors[static_cast<size_t>(row * blocks + block)];
}

void check(const HopperOperand& m, Promotion promotion) {
  const int64_t blocks = (m.terms + kHopperPromotion - 1) / kHopperPromotion;
  OCTAVO_ASSERT(std::ssize(m.codes) == m.rows * m.terms);
  OCTAVO_ASSERT(m.factors.empty() ||
                (promotion == Promotion::kEvery128 && std::ssize(m.factors) == m.rows * blocks));
}

}  // namespace

void hopper_gemm(const HopperOperand& a, const HopperOperand& b, Promotion promotion, int64_t first,
                 int64_t last, std::span<float> c) {
  check(a, promotion);
  check(b, promotion);
  OCTAVO_ASSERT(a.terms == b.terms && 0 <= first && first <= last && last <= a.rows &&
                std::ssize(c) == (last - first) * b.rows);
  const Rows left = take_apart(a, first, last), right = take_apart(b, 0, b.rows);
  const int64_t span = promotion == Promotion::kNever ? left.padded : kHopperPromotion;
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < b.rows; ++j) {
      float& result = c[static_cast<size_t>((i - first) * b.rows + j)];
      if (left.finite[static_cast<size_t>(i - first)] == 0 ||
          right.finite[static_cast<size_t>(j)] == 0) {
        result = special_dot(a, i, b, j);
        continue;
      }
      result = 0;
      const float *x = left.values_of(i - first), *y = right.values_of(j);
      const int32_t *x_exponents = left.exponents_of(i - first),
                    *y_exponents = right.exponents_of(j);
      for (int64_t from = 0; from < left.padded; from += span) {
        float sum = 0;
        for (int64_t k = from; k < std::min(from + span, left.padded); k += kHopperGroup)
          sum = add_group(sum, x + k, x_exponents + k, y + k, y_exponents + k);
        const int64_t block = from / kHopperPromotion;
        result = promotion == Promotion::kNever
                     ? sum
                     : result + sum * (factor_of(a, i, block) * factor_of(b, j, block));
      }
    }
}

float hopper_dot(const HopperOperand& a, const HopperOperand& b, Promotion promotion) {
  OCTAVO_ASSERT(a.rows == 1 && b.rows == 1);
  float result = 0;
  hopper_gemm(a, b, promotion, 0, 1, std::span(&result, 1));
  return result;
}

}  // namespace octavo::fp8

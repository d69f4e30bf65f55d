// BF16 to FP32 and back on plain memory, on every instruction set.

#include "engine/cpu/bf16_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "engine/instruction_sets.h"

namespace octavo::engine {
namespace {

// To the nearest, ties to even, by the definition: the two neighbours, and the nearer one in FP64.
uint16_t rounded(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto below = static_cast<uint16_t>(bits >> 16);
  if (std::isinf(x) || (bits & 0xFFFF) == 0) return below;
  const auto value = [](uint16_t bf16) {
    const uint32_t exponent = bf16 >> 7 & 0xFF, mantissa = bf16 & 0x7F;
    const double significand = exponent == 0 ? mantissa : mantissa + 128.0;
    return std::ldexp(significand, static_cast<int>(std::max(exponent, 1u)) - 134);
  };
  const auto above = static_cast<uint16_t>(below + 1);
  const double magnitude = std::fabs(static_cast<double>(x));
  const double to_below = magnitude - value(below & 0x7FFF),
               to_above = value(above & 0x7FFF) - magnitude;
  if (to_below == to_above) return (below & 1) == 0 ? below : above;
  return to_below < to_above ? below : above;
}

TEST(Bf16Rows, RoundsToTheNearestAndTiesToEven) {
  constexpr size_t kRows = 7, kColumns = 1237, kStride = 1300;
  std::vector<float> x(kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto words = philox(3, 4, i);
    // Any bits, ties among them, below infinity: 0x7F7F8000 and above round to it.
    const uint32_t low = i % 3 == 0 ? 0x8000 : words[1] & 0xFFFF;
    const uint32_t high = words[0] & 0xFFFF;
    x[i] =
        std::bit_cast<float>((high & 0x7F80) == 0x7F80 ? (high & 0xFF80) << 16 : high << 16 | low);
  }
  for_each_instruction_set([&] {
    std::vector<uint16_t> found(kRows * kStride, 0xAAAA);
    cpu::to_bf16_rows(x.data(), kRows, kColumns, found.data(), kStride);
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t c = 0; c < kColumns; ++c)
        ASSERT_EQ(found[r * kStride + c], rounded(x[r * kColumns + c])) << r << " " << c;
      for (size_t c = kColumns; c < kStride; ++c) ASSERT_EQ(found[r * kStride + c], 0xAAAA);
    }
  });
}

TEST(Bf16Rows, WidensEveryValueExactly) {
  constexpr size_t kRows = 255, kColumns = 257;
  std::vector<uint16_t> x(size_t{1} << 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  for_each_instruction_set([&] {
    std::vector<float> found(kRows * kColumns);
    cpu::to_fp32_rows(x.data(), kRows, kColumns, kColumns, found.data());
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), uint32_t{x[i]} << 16) << i;
  });
}

}  // namespace
}  // namespace octavo::engine

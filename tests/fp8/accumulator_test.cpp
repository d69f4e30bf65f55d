#include "fp8/accumulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace octavo::fp8 {
namespace {

using Codes = std::vector<uint8_t>;

constexpr Format kE4M3 = Format::kE4M3, kE5M2 = Format::kE5M2;

uint8_t code(float value, Format format = kE4M3) {
  const uint8_t made = encode(format, value);
  EXPECT_EQ(decode(format, made), value) << "the test's own number is no FP8 value";
  return made;
}

HopperOperand row(const Codes& codes, Format format = kE4M3) {
  return {format, codes, 1, static_cast<int64_t>(codes.size()), {}};
}

float dot(const std::vector<float>& a, const std::vector<float>& b,
          Promotion promotion = Promotion::kNever) {
  Codes left, right;
  for (const float value : a) left.push_back(code(value));
  for (const float value : b) right.push_back(code(value));
  return hopper_dot(row(left), row(right), promotion);
}

TEST(HopperAccumulator, ExactWhereNothingIsCut) {
  EXPECT_EQ(dot({1, 2, 3, -4}, {1, 1, 1, 0.5}), 4);
  EXPECT_EQ(dot({0, 0}, {3, -3}), 0);
  EXPECT_EQ(dot({1, 1}, {3, -3}), 0);
  EXPECT_EQ(dot({448}, {448}), 448.0f * 448);
}

// 1 * 1 beside a term of 2^-13 keeps it, one of 2^-14 is lost, however many there are.
TEST(HopperAccumulator, TermsAreCutThirteenBitsBelowTheLargestExponent) {
  EXPECT_EQ(dot({1, 0x1p-6f}, {1, 0x1p-7f}), 1 + 0x1p-13f);
  std::vector<float> a(32, 0x1p-7f), b(32, 0x1p-7f);
  a[0] = b[0] = 1;
  EXPECT_EQ(dot(a, b), 1) << "31 terms of 2^-14 are 2^-9 in truth";
}

TEST(HopperAccumulator, CutsTowardsZero) {
  // 1.75 * 2^-14 of either sign becomes 0 beside 1.
  EXPECT_EQ(dot({1, 0x1.cp-7f}, {1, 0x1p-7f}), 1);
  EXPECT_EQ(dot({1, -0x1.cp-7f}, {1, 0x1p-7f}), 1);
  EXPECT_EQ(dot({-1, 0x1.cp-7f}, {1, 0x1p-7f}), -1);
  // The sum: 3 + 2^-13 has one bit too many.
  EXPECT_EQ(dot({1.5, 0x1p-6f}, {2, 0x1p-7f}), 3);
  EXPECT_EQ(dot({-1, -1, -1, -0x1p-6f}, {1, 1, 1, 0x1p-7f}), -3);
}

// The exponent of a product is the sum of its operands' exponents: 1.5 * 1.5 = 2.25 counts as 2^0,
// and so a term of 2^-13 is kept beside it. A normalised product would cut it.
TEST(HopperAccumulator, ProductsAreNotNormalised) {
  EXPECT_EQ(dot({1.75, 0x1p-6f}, {1.75, 0x1p-7f}), 3.0625f) << "the sum has 13 fraction bits, too";
  EXPECT_EQ(dot({1.5, -1.25, 0x1p-6f}, {1.5, 1, 0x1p-7f}), 1 + 0x1p-13f);
}

// A subnormal's exponent is the smallest normal's: 2^-9 * 64 has -6 + 6, though it is 2^-3, and so
// 2^-14 is cut beside it.
TEST(HopperAccumulator, SubnormalsKeepTheSmallestExponent) {
  EXPECT_EQ(dot({0x1p-9f, 0x1p-7f}, {64, 0x1p-7f}), 0x1p-3f);
  EXPECT_EQ(dot({0x1p-9f, 0x1p-7f}, {32, 0x1p-7f}), 0x1p-4f + 0x1p-14f);
}

TEST(HopperAccumulator, TheAccumulatorIsCutFromGroupToGroup) {
  // 33 ones: the second group adds one to 32, which is exact; 2^14 + 1 is not.
  EXPECT_EQ(dot(std::vector<float>(33, 1), std::vector<float>(33, 1)), 33);
  std::vector<float> a(64, 0), b(64, 0);
  a[0] = b[0] = 128;  // 2^14
  a[32] = b[32] = 1;
  EXPECT_EQ(dot(a, b), 16384);
  EXPECT_EQ(dot({128, 1}, {128, 1}), 16384);
}

TEST(HopperAccumulator, PromotionKeepsWhatTheAccumulatorLoses) {
  std::vector<float> a(256, 0), b(256, 0);
  a[0] = b[0] = 128;
  a[128] = b[128] = 1;
  EXPECT_EQ(dot(a, b, Promotion::kNever), 16384);
  EXPECT_EQ(dot(a, b, Promotion::kEvery128), 16385);
  a[127] = b[127] = 1;  // still of the first 128
  EXPECT_EQ(dot(a, b, Promotion::kEvery128), 16385);
}

TEST(HopperAccumulator, NanAndInfinity) {
  const uint8_t nan = layout(kE4M3).nan_code, one = code(1), infinity = layout(kE5M2).overflow_code;
  EXPECT_TRUE(std::isnan(hopper_dot(row({one, nan}), row({one, 0}), Promotion::kNever)));
  const auto mixed = [&](const Codes& wide, const Codes& narrow) {
    return hopper_dot(row(wide, kE5M2), row(narrow), Promotion::kEvery128);
  };
  const uint8_t minus = infinity | 0x80;
  EXPECT_EQ(mixed({infinity, 0}, {one, one}), INFINITY);
  EXPECT_EQ(mixed({minus, 0}, {one, one}), -INFINITY);
  EXPECT_TRUE(std::isnan(mixed({infinity, minus}, {one, one})));
  EXPECT_TRUE(std::isnan(mixed({infinity, 0}, {0, one})));
}

TEST(HopperAccumulator, ScalesMultiplyWhatIsPromoted) {
  const Codes a(160, code(1)), b(160, code(0.5));
  const std::vector<float> left = {4, 0.25f}, right = {2, 8};
  HopperOperand x = row(a), y = row(b);
  x.factors = left;
  y.factors = right;
  EXPECT_EQ(hopper_dot(x, y, Promotion::kEvery128), 64 * 8 + 16 * 2);
}

// A GEMM is its dot products, whichever rows are asked for, and their error is that of the sheet:
// some 1e-3 for K = 4096 without promotion, far less with it.
TEST(HopperAccumulator, GemmIsItsDotProducts) {
  constexpr int64_t kRows = 6, kColumns = 5, kTerms = 4096;
  Codes a, b;
  for (int64_t i = 0; i < (kRows + kColumns) * kTerms; ++i) {
    const auto draw = philox(7, 1, static_cast<uint64_t>(i));
    float sum = 0;
    for (const uint32_t word : draw) sum += static_cast<float>(word) * 0x1p-32f - 0.5f;
    (i < kRows * kTerms ? a : b).push_back(encode(kE4M3, 150 * sum));
  }
  const HopperOperand x{kE4M3, a, kRows, kTerms, {}}, y{kE4M3, b, kColumns, kTerms, {}};
  double off[2] = {0, 0}, size = 0;
  for (const Promotion promotion : {Promotion::kNever, Promotion::kEvery128}) {
    std::vector<float> all(kRows * kColumns), part(2 * kColumns);
    hopper_gemm(x, y, promotion, 0, kRows, all);
    hopper_gemm(x, y, promotion, 3, 5, part);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) {
        const Codes left(a.begin() + i * kTerms, a.begin() + (i + 1) * kTerms),
            right(b.begin() + j * kTerms, b.begin() + (j + 1) * kTerms);
        const float found = all[static_cast<size_t>(i * kColumns + j)];
        EXPECT_EQ(found, hopper_dot(row(left), row(right), promotion));
        if (i == 3 || i == 4) {
          EXPECT_EQ(found, part[static_cast<size_t>((i - 3) * kColumns + j)]);
        }
        double exact = 0;
        for (size_t k = 0; k < left.size(); ++k)
          exact += static_cast<double>(decode(kE4M3, left[k])) * decode(kE4M3, right[k]);
        off[promotion == Promotion::kNever ? 0 : 1] += std::pow(found - exact, 2);
        if (promotion == Promotion::kNever) size += exact * exact;
      }
  }
  EXPECT_GT(std::sqrt(off[0] / size), 5e-4);
  EXPECT_LT(std::sqrt(off[0] / size), 5e-3);
  EXPECT_LT(std::sqrt(off[1] / size), 6e-4);
  EXPECT_GT(off[1], 0);
}

}  // namespace
}  // namespace octavo::fp8

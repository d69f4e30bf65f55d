#include "fp8/nvfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace octavo::fp8 {
namespace {

using Floats = std::vector<float>;
using Codes = std::vector<uint8_t>;

Floats normal(int64_t count, float size = 1) {
  Floats values;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (const uint32_t word : philox(5, 2, static_cast<uint64_t>(i)))
      sum += static_cast<float>(word) * 0x1p-32f - 0.5f;
    const float value = size * sum;  // as BF16
    values.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000));
  }
  return values;
}

TEST(E2M1, EveryTieGoesToTheEvenCode) {
  const std::pair<float, float> ties[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                          {2.5f, 2},  {3.5f, 4},  {5, 4}};
  for (const auto& [value, wanted] : ties) {
    EXPECT_EQ(decode_e2m1(encode_e2m1(value)), wanted);
    EXPECT_EQ(decode_e2m1(encode_e2m1(-value)), -wanted);
    const float above = std::nextafter(value, 10.0f), below = std::nextafter(value, 0.0f);
    EXPECT_GE(decode_e2m1(encode_e2m1(above)), value);
    EXPECT_LE(decode_e2m1(encode_e2m1(below)), value);
  }
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(encode_e2m1(decode_e2m1(code)), code);
  EXPECT_EQ(encode_e2m1(7), 7);
  EXPECT_EQ(encode_e2m1(-INFINITY), 15);
  EXPECT_EQ(encode_e2m1(-0.0f), 8);
  EXPECT_EQ(encode_e2m1(NAN), 7);
}

TEST(E2M1, StochasticTakesTheUpperInFloorOf256F) {
  for (const float value :
       {0.0f, 0.1f, 0.5f, 0.6f, 1.9999f, 2.0f, 2.3f, 3.999f, 4.7f, 5.9f, 6.0f, 9.0f}) {
    int ups = 0;
    const uint8_t below = encode_e2m1_stochastic(value, 0);
    for (int bits = 0; bits < 256; ++bits) {
      const uint8_t code = encode_e2m1_stochastic(value, static_cast<uint8_t>(bits));
      ASSERT_TRUE(code == below || code == below + 1) << value;
      EXPECT_EQ(encode_e2m1_stochastic(-value, static_cast<uint8_t>(bits)), code | 8);
      ups += code == below + 1;
    }
    ASSERT_LE(kE2M1Values[below], value);
    const double step = below < 7 ? kE2M1Values[below + 1] - kE2M1Values[below] : 1;
    const double way = below < 7 ? (static_cast<double>(value) - kE2M1Values[below]) / step : 0;
    EXPECT_EQ(ups, static_cast<int>(std::floor(256 * way))) << value;
  }
}

TEST(Nvfp4, ScalesAreOfBlocksAndOfTheMatrix) {
  Floats values(32, 1);
  values[3] = -12;  // of the first block, and of all
  const Nvfp4 q = quantize_nvfp4(values, 1, 32, Nvfp4Blocks::k1x16);
  EXPECT_EQ(q.amax, 12);
  // S = 224: 12 * 224 / 6 = 448; 224 / 6 = 37.33, in E4M3 36.
  EXPECT_EQ(q.scales, (Codes{encode(Format::kE4M3, 448), encode(Format::kE4M3, 36)}));
  EXPECT_EQ(q.codes[3], 15);
  EXPECT_EQ(q.codes[0], 1) << "224 / 448";
  EXPECT_EQ(q.codes[16], 7);
  EXPECT_EQ(packed(q.codes)[1], 0xF0 | q.codes[2]);
}

TEST(Nvfp4, SquaresShareAScale) {
  Floats values = normal(32 * 48);
  values[17 * 48 + 20] = 3;
  const Nvfp4 q = quantize_nvfp4(values, 32, 48, Nvfp4Blocks::k16x16);
  ASSERT_EQ(q.scales.size(), 6u);
  EXPECT_EQ(q.scales[4], encode(Format::kE4M3, 448));
  const Nvfp4 rows = quantize_nvfp4(values, 32, 48, Nvfp4Blocks::k1x16);
  EXPECT_EQ(rows.scales.size(), 96u);
}

TEST(Nvfp4, ZerosTinyAndHugeNumbers) {
  const Nvfp4 zeros = quantize_nvfp4(Floats(16, 0), 1, 16, Nvfp4Blocks::k1x16);
  EXPECT_EQ(zeros.scales, Codes{0});
  EXPECT_EQ(zeros.codes, Codes(16, 0));
  // A block that is nothing beside another: its scale is 0, its values are worth 0.
  Floats apart(32, 0x1p-30f);
  apart[0] = 1;
  const Nvfp4 lost = quantize_nvfp4(apart, 1, 32, Nvfp4Blocks::k1x16);
  EXPECT_EQ(lost.scales[1], 0);
  EXPECT_EQ(lost.codes[31], 7);
  EXPECT_EQ(scaled_values(lost, 1, 32, Nvfp4Blocks::k1x16)[31], 0);
  Floats huge(16, 1);
  huge[5] = INFINITY;
  EXPECT_EQ(quantize_nvfp4(huge, 1, 16, Nvfp4Blocks::k1x16).codes[5], 7);
  huge[5] = std::numeric_limits<float>::max();
  EXPECT_EQ(quantize_nvfp4(huge, 1, 16, Nvfp4Blocks::k1x16).codes[5], 7);
}

// What is multiplied is BF16, and with alpha near to the GEMM of the numbers themselves.
TEST(Nvfp4, ValuesAreBf16AndAlphaGivesThemTheirSize) {
  const Floats a = normal(64), b = normal(64, 0.02f);
  const Nvfp4 qa = quantize_nvfp4(a, 1, 64, Nvfp4Blocks::k1x16),
              qb = quantize_nvfp4(b, 1, 64, Nvfp4Blocks::k1x16);
  const Floats va = scaled_values(qa, 1, 64, Nvfp4Blocks::k1x16),
               vb = scaled_values(qb, 1, 64, Nvfp4Blocks::k1x16);
  const double alpha = nvfp4_alpha(qa.amax, qb.amax);
  double noise = 0, signal = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(va[i]) & 0xFFFF, 0u);
    const double one = va[i] * static_cast<double>(qa.amax) / (6 * 448);
    noise += std::pow(one - a[i], 2);
    signal += std::pow(a[i], 2);
    EXPECT_NEAR(va[i] * vb[i] * alpha, one * (vb[i] * static_cast<double>(qb.amax) / (6 * 448)),
                1e-7);
  }
  EXPECT_GT(10 * std::log10(signal / noise), 17);
}

// Rotating twice by the transposed matrix gives the numbers back; here: dot products stay.
TEST(Nvfp4, RotationKeepsDotProducts) {
  const Floats a = normal(64), b = normal(128);
  const Floats c(b.begin() + 64, b.end()), ra = rotated(a), rc = rotated(c);
  double before = 0, after = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    before += static_cast<double>(a[i]) * c[i];
    after += static_cast<double>(ra[i]) * rc[i];
    size += std::fabs(static_cast<double>(a[i]) * c[i]);
  }
  EXPECT_NEAR(before, after, 0.01 * size);
  Floats one(16, 0);
  one[3] = 8;  // the fourth sign is negative; H's row 3 is + - - +
  const Floats row = rotated(one);
  EXPECT_EQ(row[0], -2);
  EXPECT_EQ(row[1], 2);
  EXPECT_EQ(row[2], 2);
  EXPECT_EQ(row[3], -2);
}

TEST(Nvfp4, DrawsAreOfTheElement) {
  const Floats values = normal(256);
  const Nvfp4Rounding one{.stochastic = true, .seed = 1, .stream = 2}, other{true, 1, 3};
  const auto quantized = [&](const Nvfp4Rounding& rounding) {
    return quantize_nvfp4(values, 4, 64, Nvfp4Blocks::k1x16, rounding).codes;
  };
  EXPECT_EQ(quantized(one), quantized(one));
  EXPECT_NE(quantized(one), quantized(other));
  EXPECT_NE(quantized(one), quantized({}));
}

}  // namespace
}  // namespace octavo::fp8

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "fp8/formats.h"
#include "fp8/numbers.h"

namespace octavo::fp8 {
namespace {

constexpr uint32_t kMostBits = 0xFFFFFFFF;

// Between each two neighbours, at k/64 of the way: exactly k/64 of all 2^32 draws must go up. The
// rule is a threshold on the draw, so that the two draws beside it prove the probability.
TEST(Stochastic, ProbabilityIsTheFractionBetweenEveryTwoCodes) {
  for (const Format format : kFormats) {
    for (int code = 0; code < layout(format).max_code; ++code) {
      const float low = decode(format, static_cast<uint8_t>(code));
      const float step = decode(format, static_cast<uint8_t>(code + 1)) - low;
      for (uint32_t k = 1; k < 64; ++k) {
        const float value = low + step * static_cast<float>(k) / 64;
        const uint32_t threshold = k << 26;
        EXPECT_EQ(encode_stochastic(format, value, 0), code + 1);
        EXPECT_EQ(encode_stochastic(format, value, threshold - 1), code + 1);
        EXPECT_EQ(encode_stochastic(format, value, threshold), code);
        EXPECT_EQ(encode_stochastic(format, value, kMostBits), code);
        EXPECT_EQ(encode_stochastic(format, -value, threshold - 1), 0x80 | (code + 1));
        EXPECT_EQ(encode_stochastic(format, -value, threshold), 0x80 | code);
      }
    }
  }
}

TEST(Stochastic, BelowTheSmallestSubnormal) {
  for (const Format format : kFormats) {
    const float smallest = decode(format, 1);
    for (int k = 1; k <= 32; ++k) {
      const float value = std::ldexp(smallest, -k);
      const uint32_t threshold = 1u << (32 - k);
      EXPECT_EQ(encode_stochastic(format, value, threshold - 1), 1) << k;
      EXPECT_EQ(encode_stochastic(format, value, threshold), 0) << k;
    }
    for (const float tiny : {std::ldexp(smallest, -33), std::numeric_limits<float>::denorm_min()})
      EXPECT_EQ(encode_stochastic(format, -tiny, 0), 0x80);
  }
}

TEST(Stochastic, CodesStayWhateverTheDraw) {
  for (const Format format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const float value = decode(format, static_cast<uint8_t>(code));
      if (!std::isfinite(value)) continue;
      for (const uint32_t draw : {0u, 0x80000000u, kMostBits})
        EXPECT_EQ(encode_stochastic(format, value, draw), code);
    }
  }
}

TEST(Stochastic, SaturatesAndKeepsNan) {
  for (const Format format : kFormats) {
    const uint8_t most = layout(format).max_code;
    for (const uint32_t draw : {0u, 0x12345678u, kMostBits}) {
      for (const float huge : {std::nextafter(max_value(format), kInf), 1e6f, 3e38f, kInf}) {
        EXPECT_EQ(encode_stochastic(format, huge, draw), most);
        EXPECT_EQ(encode_stochastic(format, -huge, draw), 0x80 | most);
      }
      EXPECT_EQ(encode_stochastic(format, kNan, draw), 0x7F);
      EXPECT_EQ(encode_stochastic(format, -kNan, draw), 0xFF);
    }
  }
}

// The mean over Philox draws, one value in each binade from 2^-8 of the smallest subnormal up.
TEST(Stochastic, MeanIsTheValue) {
  constexpr int kDraws = 40000;
  for (const Format format : kFormats) {
    std::vector<uint8_t> codes(kDraws);
    uint64_t stream = 0;
    for (float base = std::ldexp(decode(format, 1), -8); base <= max_value(format) / 2; base *= 2) {
      const float value = -base * 1.3f;
      const std::vector<float> values(kDraws, value);
      Incidents incidents;
      encode_stochastic(format, values, codes, {.seed = 7, .stream = ++stream}, incidents);
      double sum = 0, squares = 0;
      for (const uint8_t code : codes) {
        const double error = static_cast<double>(decode(format, code)) - value;
        sum += error;
        squares += error * error;
      }
      ASSERT_GT(squares, 0);
      // The sum of n independent errors of mean zero has the standard error sqrt(sum of squares).
      EXPECT_LE(std::fabs(sum), 4 * std::sqrt(squares)) << value;
    }
  }
}

TEST(Stochastic, ArraysUseOneNumberPerElementHoweverTheyAreCut) {
  std::vector<float> values(1003);
  fill_normal(values.data(), static_cast<int64_t>(values.size()), 3.0f, 1, 2);
  values[5] = kNan;
  values[6] = kInf;
  values[7] = 1e9f;
  values[8] = 1e-20f;
  const uint64_t seed = 11, stream = 22;
  for (const Format format : kFormats) {
    std::vector<uint8_t> whole(values.size()), cut(values.size());
    Incidents of_whole, of_cut;
    encode_stochastic(format, values, whole, {seed, stream, 0}, of_whole);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(whole[i], encode_stochastic(format, values[i], philox(seed, stream, i / 4)[i % 4]));
    for (size_t begin = 0; begin < values.size(); begin += 59) {
      const size_t count = std::min<size_t>(59, values.size() - begin);
      encode_stochastic(format, std::span(values).subspan(begin, count),
                        std::span(cut).subspan(begin, count), {seed, stream, begin}, of_cut);
    }
    EXPECT_EQ(whole, cut);
    EXPECT_EQ(of_whole, of_cut);
    EXPECT_EQ(of_whole.nan, 1);
    EXPECT_EQ(of_whole.inf, 1);
    EXPECT_EQ(of_whole.saturated, 1);
    EXPECT_GE(of_whole.underflowed, 1);
  }
}

}  // namespace
}  // namespace octavo::fp8

#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace octavo {
namespace {

using Block = std::array<uint32_t, 4>;

// The known-answer vectors of Random123 (philox4x32-10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: the digits of pi.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SeedStreamAndCounterAllMatter) {
  std::set<Block> seen;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (uint64_t stream = 0; stream < 4; ++stream)
      for (uint64_t counter = 0; counter < 4; ++counter)
        seen.insert(philox(seed, stream << 40, counter << 50));
  EXPECT_EQ(seen.size(), 64u);
}

TEST(Random, StreamsOfNames) {
  const std::set<uint64_t> streams = {stream_of(""), stream_of("a"), stream_of("b"),
                                      stream_of("ab"), stream_of("ba")};
  EXPECT_EQ(streams.size(), 5u);
  EXPECT_EQ(stream_of("wte.weight"), stream_of("wte.weight"));
}

TEST(Random, UniformStaysBelowOne) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_LT(uniform_from_bits(0xFFFFFFFF), 1.0f);
  EXPECT_EQ(uniform_from_bits(0x80000000), 0.5f);
}

// Sample moments of a million draws: their standard errors are 1e-3, 1.4e-3, 2.4e-3 and 1e-2.
TEST(FillNormal, Moments) {
  constexpr int64_t kCount = 1'000'000;
  std::vector<float> values(kCount);
  fill_normal(values.data(), kCount, 2.0f, 7, stream_of("moments"));
  double sums[5] = {};
  double largest = 0, neighbours = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double x = values[static_cast<size_t>(i)] / 2.0;
    ASSERT_TRUE(std::isfinite(x));
    largest = std::max(largest, std::abs(x));
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(x, power);
    if (i > 0) neighbours += x * values[static_cast<size_t>(i - 1)] / 2.0;
  }
  EXPECT_NEAR(sums[1] / kCount, 0, 5e-3);
  EXPECT_NEAR(sums[2] / kCount, 1, 7e-3);
  EXPECT_NEAR(sums[3] / kCount, 0, 1.2e-2);
  EXPECT_NEAR(sums[4] / kCount, 3, 5e-2);
  EXPECT_NEAR(neighbours / kCount, 0, 5e-3);
  EXPECT_GT(largest, 4);
  EXPECT_LT(largest, 7);
}

// Element i depends on i alone, so a rank may draw its own part, and a count may be anything.
TEST(FillNormal, IndependentOfCount) {
  std::vector<float> whole(64);
  fill_normal(whole.data(), 64, 0.02f, 1, 2);
  for (int64_t count = 0; count <= 17; ++count) {
    std::vector<float> part(static_cast<size_t>(count) + 1, -1.0f);
    fill_normal(part.data(), count, 0.02f, 1, 2);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) EXPECT_EQ(part[i], whole[i]) << i;
    EXPECT_EQ(part.back(), -1.0f) << "wrote beyond " << count;
  }
  std::vector<float> other(64);
  fill_normal(other.data(), 64, 0.02f, 1, 3);
  EXPECT_NE(other, whole);
}

}  // namespace
}  // namespace octavo

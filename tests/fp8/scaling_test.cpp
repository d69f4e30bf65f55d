#include "fp8/scaling.h"
#include "fp8/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace octavo::fp8 {
namespace {

struct Slots {
  int64_t length;
  std::vector<float> amax, factors;
  std::vector<Format> formats;

  Slots(int64_t rows, const std::vector<Format>& f)
      : length(rows),
        amax(f.size() * static_cast<size_t>(rows)),
        factors(f.size(), 1),
        formats(f) {}

  void step(const std::vector<float>& newest, AmaxAlgo algo = AmaxAlgo::kMax, int64_t margin = 0,
            bool recompute = true) {
    for (size_t slot = 0; slot < newest.size(); ++slot) amax[slot] = newest[slot];
    update_factors({amax, factors, formats, length}, algo, margin, recompute);
  }
};

using Floats = std::vector<float>;

TEST(Delayed, HistoryRollsAndTheLargestCounts) {
  Slots s(4, {Format::kE4M3});
  s.step({2});
  EXPECT_EQ(s.amax, (Floats{0, 0, 0, 2}));
  EXPECT_EQ(s.factors, (Floats{224}));
  s.step({7});
  EXPECT_EQ(s.amax, (Floats{0, 0, 2, 7}));
  EXPECT_EQ(s.factors, (Floats{64}));
  s.step({1});
  EXPECT_EQ(s.amax, (Floats{0, 2, 7, 1}));
  EXPECT_EQ(s.factors, (Floats{64}));
  s.step({4});  // the 2 falls out
  EXPECT_EQ(s.amax, (Floats{0, 7, 1, 4}));
  s.step({1});  // the 7 falls out, but counts in the step that drops it
  EXPECT_EQ(s.amax, (Floats{0, 1, 4, 1}));
  EXPECT_EQ(s.factors, (Floats{64}));
  s.step({1});
  EXPECT_EQ(s.factors, (Floats{112}));
}

TEST(Delayed, MostRecentForgets) {
  Slots s(4, {Format::kE4M3});
  s.step({7}, AmaxAlgo::kMostRecent);
  s.step({1}, AmaxAlgo::kMostRecent);
  EXPECT_EQ(s.factors, (Floats{448}));
  EXPECT_EQ(s.amax, (Floats{0, 0, 7, 1}));
}

TEST(Delayed, HistoryOfOne) {
  Slots s(1, {Format::kE5M2});
  s.step({7});
  EXPECT_EQ(s.amax, (Floats{0}));
  EXPECT_EQ(s.factors, (Floats{8192}));
  s.step({14});
  EXPECT_EQ(s.factors, (Floats{4096}));
}

TEST(Delayed, MarginHalvesTheFactor) {
  for (int margin = 0; margin < 4; ++margin) {
    Slots s(3, {Format::kE4M3, Format::kE5M2});
    s.step({2, 3}, AmaxAlgo::kMax, margin);
    EXPECT_EQ(s.factors, (Floats{std::ldexp(224.0f, -margin), std::ldexp(57344.0f, -margin) / 3}));
  }
}

TEST(Delayed, SlotsAreApart) {
  Slots s(3, {Format::kE4M3, Format::kE5M2, Format::kE4M3});
  s.step({1, 1, 4});
  s.step({2, 0, 1});
  EXPECT_EQ(s.amax, (Floats{0, 0, 0, 1, 0, 4, 2, 1, 1}));
  EXPECT_EQ(s.factors, (Floats{224, 57344, 112}));
}

TEST(Delayed, ZeroKeepsEverything) {
  for (const AmaxAlgo algo : {AmaxAlgo::kMax, AmaxAlgo::kMostRecent}) {
    Slots s(3, {Format::kE4M3});
    s.step({0}, algo);
    EXPECT_EQ(s.factors, (Floats{1}));
    s.step({7}, algo);
    const auto before = s.amax;
    s.step({0}, algo);
    EXPECT_EQ(s.amax, before);
    EXPECT_EQ(s.factors, (Floats{64}));
  }
}

TEST(Delayed, InfinityKeepsTheFactorWhileItIsSeen) {
  Slots s(3, {Format::kE4M3});
  s.step({7});
  s.step({kInf});
  EXPECT_EQ(s.amax, (Floats{0, 7, kInf}));
  EXPECT_EQ(s.factors, (Floats{64}));
  s.step({1});
  EXPECT_EQ(s.factors, (Floats{64}));  // the infinity is in the history yet
  s.step({1});
  EXPECT_EQ(s.factors, (Floats{64}));  // and leaves it now
  s.step({1});
  EXPECT_EQ(s.factors, (Floats{448}));

  Slots recent(3, {Format::kE4M3});
  recent.step({kInf}, AmaxAlgo::kMostRecent);
  EXPECT_EQ(recent.factors, (Floats{1}));
  recent.step({1}, AmaxAlgo::kMostRecent);
  EXPECT_EQ(recent.factors, (Floats{448}));
}

// As fmaxf does in the kernel: none of our amaxes is NaN, but a file may say so.
TEST(Delayed, NanIsPassedOver) {
  Slots s(3, {Format::kE4M3});
  s.step({7});
  s.factors = {1};
  s.step({kNan});
  EXPECT_EQ(s.factors, (Floats{64}));
  EXPECT_TRUE(std::isnan(s.amax[2]));
  s.step({1});
  EXPECT_EQ(s.factors, (Floats{64}));

  Slots recent(3, {Format::kE4M3});
  recent.step({kNan}, AmaxAlgo::kMostRecent);
  EXPECT_EQ(recent.factors, (Floats{1}));
}

TEST(Delayed, TinyAmaxStopsAtTheLargestFloat) {
  Slots s(2, {Format::kE4M3, Format::kE5M2});
  s.step({1e-38f, 1e-35f});
  EXPECT_EQ(s.factors, (Floats{kMost, kMost}));
}

TEST(Delayed, BetweenIntervalsTheHistoryRollsAlone) {
  Slots s(3, {Format::kE4M3});
  s.step({7}, AmaxAlgo::kMax, 0, false);
  EXPECT_EQ(s.factors, (Floats{1}));
  EXPECT_EQ(s.amax, (Floats{0, 0, 7}));
  s.step({1}, AmaxAlgo::kMax, 0, true);
  EXPECT_EQ(s.factors, (Floats{64}));
}

}  // namespace
}  // namespace octavo::fp8

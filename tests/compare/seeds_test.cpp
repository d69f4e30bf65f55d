#include "compare/seeds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "compare/equal_loss.h"
#include "compare/synthetic_run.h"
#include "compare/verdict.h"

namespace octavo::compare {
namespace {

TEST(Seeds, FollowFromSpreadAndMargin) {
  EXPECT_EQ(seeds_for_verdict({}, 0.5), 3);
  EXPECT_EQ(seeds_for_verdict(std::vector<double>{7}, 0.5), 3);
  // A standard deviation of 1.5: ((1.960 + 1.645) * 1.5 / 0.5)^2 = 117 with normal quantiles, and
  // a little more with Student's.
  const std::vector<double> wide = {-1.5, 0, 1.5};
  EXPECT_NEAR(static_cast<double>(seeds_for_verdict(wide, 0.5)), 119, 1);
  EXPECT_NEAR(static_cast<double>(seeds_for_verdict(wide, 1)), 31.5, 1);
  EXPECT_EQ(seeds_for_verdict(wide, 0.05), 0) << "more than a thousand";
  // As many as planned are there: the gap's distance from the margin counts.
  const std::vector<double> near = {0.40, 0.42, 0.44, 0.46, 0.48};
  EXPECT_GT(seeds_for_verdict(near, 0.5), 5);
  EXPECT_EQ(seeds_for_verdict(std::vector<double>{0.3, 0.5, 0.7}, 0.5), 5)
      << "planned by the margin, 0.5, not by the distance, 0";
}

// A seed's gap: normal, from Box and Muller.
double drawn_gap(uint64_t trial, uint64_t seed, double mean, double deviation) {
  const auto draw = philox(31, trial, seed);
  const double u = (draw[0] + 1.0) * 0x1p-32, v = draw[1] * 0x1p-32;
  return mean + deviation * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

// As a user does it: three seeds, then as many as are asked for, until there is a verdict.
Verdict followed(uint64_t trial, double mean, double deviation) {
  std::vector<double> gaps;
  for (int64_t wanted = 3; wanted > 0;) {
    while (std::ssize(gaps) < wanted)
      gaps.push_back(drawn_gap(trial, gaps.size(), mean, deviation));
    const Verdict verdict = judge_at_most(independent_mean(gaps), 0.5);
    if (verdict != Verdict::kNotEnoughData) return verdict;
    wanted = seeds_for_verdict(gaps, 0.5);
  }
  return Verdict::kNotEnoughData;
}

TEST(Seeds, WhatIsAskedForDecides) {
  constexpr uint64_t kTrials = 200;
  int found = 0, missed = 0, passed = 0, alarms = 0;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const Verdict regression = followed(trial, 1, 1.5), none = followed(trial + kTrials, 0, 1.5);
    found += regression == Verdict::kFail;
    missed += regression == Verdict::kPass;
    passed += none == Verdict::kPass;
    alarms += none == Verdict::kFail;
  }
  EXPECT_GE(found, 0.95 * kTrials);
  EXPECT_GE(passed, 0.95 * kTrials);
  EXPECT_LE(missed, 0.05 * kTrials);
  EXPECT_LE(alarms, 0.05 * kTrials);
}

// One who looks after every seed, from three to twenty, and stops at the first verdict.
Verdict looked_after_every_seed(uint64_t trial, double mean) {
  std::vector<double> gaps;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    gaps.push_back(drawn_gap(trial, seed, mean, 1));
    if (gaps.size() < kLeastSeeds) continue;
    const Verdict verdict = judge_at_most(independent_mean(gaps), 0.5);
    if (verdict != Verdict::kNotEnoughData) return verdict;
  }
  return Verdict::kNotEnoughData;
}

// Of models whose true gap is the bound itself, and how often each way ends with PASS. The page
// says so, because nothing in the program corrects it.
TEST(Seeds, ThePageSaysWhatLookingOftenDoes) {
  constexpr uint64_t kTrials = 2000;
  int often = 0, asked = 0, planned = 0;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    often += looked_after_every_seed(trial, 0.5) == Verdict::kPass;
    asked += followed(trial, 0.5, 1) == Verdict::kPass;
    std::vector<double> gaps;
    for (uint64_t seed = 0; seed < 20; ++seed) gaps.push_back(drawn_gap(trial, seed, 0.5, 1));
    planned += judge_at_most(independent_mean(gaps), 0.5) == Verdict::kPass;
  }
  const std::string page =
      read_file(fs::path(OCTAVO_SOURCE_DIR) / "docs/how-to/compare.md", 1 << 20);
  const auto said = [&](const std::string& words) {
    const size_t at = page.find(words);
    EXPECT_NE(at, page.npos) << words;
    return at == page.npos ? -1 : std::stod(page.substr(at + words.size()));
  };
  EXPECT_NEAR(said("decided beforehand: "), 100.0 * planned / kTrials, 1);
  EXPECT_NEAR(said("as many as the report asks for: "), 100.0 * asked / kTrials, 1);
  EXPECT_NEAR(said("after every seed, up to twenty: "), 100.0 * often / kTrials, 1);
}

class EqualLossTest : public ScratchTest {
 protected:
  // Losses that fall with the logarithm of the step; B is where A was after 1 / `behind` of the
  // steps.
  std::vector<Pair> pairs(double behind, double fall = 0.3) {
    const auto loss = [=](double slower) {
      return [=](int64_t step) {
        return 5 - fall * std::log(static_cast<double>(step) / slower) +
               0.002 * std::sin(12.9898 * static_cast<double>(step));
      };
    };
    SyntheticRun a, b;
    a.name = "a";
    a.loss = loss(1);
    b.name = "b";
    b.loss = loss(behind);
    return {compare_pair(read_run(make_run(folder_, a)), read_run(make_run(folder_, b)), 0.25)};
  }
};

TEST_F(EqualLossTest, IsTheFactorThatBIsBehind) {
  std::string why;
  for (const double behind : {1.1, 1.0, 0.9}) {
    const std::vector<Pair> made = pairs(behind);
    const auto found = equal_loss(made, made[0].train->interval, std::nullopt, why);
    ASSERT_TRUE(found) << why;
    EXPECT_NEAR(found->steps.mean, behind, 0.005);
    EXPECT_LE(found->steps.low, found->steps.mean);
    EXPECT_NEAR(found->fall, 0.3 * std::log(2.0), 0.005);
    EXPECT_FALSE(found->net);
  }
}

TEST_F(EqualLossTest, IsPaidForBySpeed) {
  const std::vector<Pair> made = pairs(1.1);
  std::string why;
  const auto found = equal_loss(made, made[0].train->interval, Interval{1.43, 1.4, 1.46, 8}, why);
  ASSERT_TRUE(found && found->net);
  EXPECT_NEAR(found->net->mean, 1.3, 0.01);
  EXPECT_GE(found->net->half(), 0.5 * (1.46 - 1.4) / 1.1 * 0.99);
}

TEST_F(EqualLossTest, NeedsALossThatFalls) {
  const std::vector<Pair> flat = pairs(1, 0);
  std::string why;
  EXPECT_FALSE(equal_loss(flat, flat[0].train->interval, std::nullopt, why));
  EXPECT_NE(why.find("does not fall"), std::string::npos);
}

}  // namespace
}  // namespace octavo::compare

#include "sweep/hyperband.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace octavo::sweep {
namespace {

Definition sweep_with(const std::string& more) {
  return parse_definition("parameters: {seed: {value: 1}}\n" + more, "s.yaml");
}

// What trials with these histories are told at the band, in order; each sees all of them.
std::vector<bool> survivors(const Definition& sweep, int64_t band,
                            const std::vector<std::vector<double>>& histories) {
  std::vector<double> at_band;
  for (const auto& history : histories) at_band.push_back(value_at_band(sweep, band, history));
  std::vector<bool> all;
  for (const double own : at_band) all.push_back(survives_band(sweep, own, at_band));
  return all;
}

// The five runs of the example in W&B's own hyperband_stop_runs: bands 1 and 2, eta 2.
TEST(Hyperband, DecidesAsWandbDoesInItsExample) {
  const Definition sweep =
      sweep_with("early_terminate: {type: hyperband, max_iter: 5, eta: 2, s: 2}");
  ASSERT_EQ(sweep.hyperband.bands, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(
      survivors(sweep, 2, {{10, 9}, {10, 10}, {10, 8, 8}, {10, 7, 7}, {10, 6, 6}}),
      (std::vector<bool>{false, false, true, true, true}));  // three of five: half, rounded up
}

// floor(n / eta) + 1 of them stayed: two of three, half as many again of every multiple.
TEST(Hyperband, KeepsTheBestShareAndNotOneMore) {
  for (const int eta : {2, 3, 4}) {
    const Definition sweep =
        sweep_with(str("early_terminate: {type: hyperband, min_iter: 1, eta: ", eta, "}"));
    for (int trials = 1; trials <= 24; ++trials) {
      std::vector<std::vector<double>> histories;
      for (int i = 0; i < trials; ++i) histories.push_back({static_cast<double>(i)});
      const std::vector<bool> kept = survivors(sweep, 1, histories);
      const int expected = (trials + eta - 1) / eta;
      EXPECT_EQ(std::count(kept.begin(), kept.end(), true), expected)
          << trials << " trials, eta " << eta;
      for (int i = 0; i < expected; ++i) EXPECT_TRUE(kept[static_cast<size_t>(i)]);
    }
  }
}

TEST(Hyperband, TheFirstAtABandGoesOn) {
  const Definition sweep = sweep_with("early_terminate: {type: hyperband, min_iter: 1}");
  EXPECT_EQ(survivors(sweep, 1, {{5}}), (std::vector<bool>{true}));
}

TEST(Hyperband, EqualTrialsAreTreatedEqually) {
  const Definition sweep = sweep_with("early_terminate: {type: hyperband, min_iter: 1}");
  EXPECT_EQ(survivors(sweep, 1, {{5}, {5}, {5}, {6}}),
            (std::vector<bool>{true, true, true, false}));
}

TEST(Hyperband, KnowsWhichWayIsUp) {
  const Definition sweep = sweep_with(
      "metric: {name: perf/mfu, goal: maximize}\nearly_terminate: {type: hyperband, min_iter: 1}");
  EXPECT_EQ(survivors(sweep, 1, {{1}, {2}, {3}}), (std::vector<bool>{false, false, true}));
}

TEST(Hyperband, StrictLooksAtTheBandAndNotAtTheBest) {
  const std::vector<std::vector<double>> histories = {{1, 9}, {6, 5}, {7, 4}};
  const std::string band = "early_terminate: {type: hyperband, min_iter: 2, strict: ";
  EXPECT_EQ(survivors(sweep_with(band + "false}"), 2, histories),
            (std::vector<bool>{true, false, false}));
  EXPECT_EQ(survivors(sweep_with(band + "true}"), 2, histories),
            (std::vector<bool>{false, false, true}));
}

// A trial's best was compared with what others had at the band: everyone who was ever better than
// that stayed, and what came behind the band counted for those that were looked at late.
TEST(Hyperband, ComparesTheSameValueOfEveryTrial) {
  const Definition sweep = sweep_with("early_terminate: {type: hyperband, min_iter: 2, eta: 3}");
  // All get worse towards the band: with their best against 7 to 9, all three stayed.
  EXPECT_EQ(survivors(sweep, 2, {{1, 9}, {2, 8}, {3, 7}}), (std::vector<bool>{true, false, false}));
  EXPECT_EQ(value_at_band(sweep, 2, std::vector<double>{5, 4, 1}), 4);
}

}  // namespace
}  // namespace octavo::sweep

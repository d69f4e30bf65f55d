#include "sweep/hyperband.h"

#include <gtest/gtest.h>

namespace octavo::sweep {
namespace {

Definition sweep_with(const std::string& more) {
  return parse_definition("parameters: {seed: {value: 1}}\n" + more, "s.yaml");
}

// The five runs of the example in W&B's own hyperband_stop_runs: bands 1 and 2, eta 2.
TEST(Hyperband, DecidesAsWandbDoesInItsExample) {
  const Definition sweep =
      sweep_with("early_terminate: {type: hyperband, max_iter: 5, eta: 2, s: 2}");
  ASSERT_EQ(sweep.hyperband.bands, (std::vector<int64_t>{1, 2}));
  const std::vector<double> at_two = {9, 10, 8, 7, 6};
  EXPECT_FALSE(survives_band(sweep, 2, std::vector<double>{10, 10}, at_two));   // b
  EXPECT_TRUE(survives_band(sweep, 2, std::vector<double>{10, 8, 8}, at_two));  // the median is in
  EXPECT_TRUE(survives_band(sweep, 2, std::vector<double>{10, 7, 7}, at_two));  // d
}

TEST(Hyperband, TheFirstAtABandGoesOn) {
  const Definition sweep = sweep_with("early_terminate: {type: hyperband, min_iter: 1}");
  EXPECT_TRUE(survives_band(sweep, 1, std::vector<double>{5}, {5}));
}

TEST(Hyperband, KnowsWhichWayIsUp) {
  const Definition sweep = sweep_with(
      "metric: {name: perf/mfu, goal: maximize}\nearly_terminate: {type: hyperband, min_iter: 1}");
  EXPECT_FALSE(survives_band(sweep, 1, std::vector<double>{1}, {1, 2, 3}));
  EXPECT_TRUE(survives_band(sweep, 1, std::vector<double>{3}, {1, 2, 3}));
}

TEST(Hyperband, StrictLooksAtTheBandAndNotAtTheBest) {
  const std::vector<double> history = {1, 9};
  const std::vector<double> at_two = {9, 5, 4};
  const std::string band = "early_terminate: {type: hyperband, min_iter: 2, strict: ";
  EXPECT_TRUE(survives_band(sweep_with(band + "false}"), 2, history, at_two));
  EXPECT_FALSE(survives_band(sweep_with(band + "true}"), 2, history, at_two));
}

}  // namespace
}  // namespace octavo::sweep

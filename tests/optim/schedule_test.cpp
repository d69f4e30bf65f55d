#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace octavo::optim {
namespace {

TEST(Schedule, WarmUpIsLinearAndNeverZero) {
  const Schedule schedule{1e-3, 0.1, 10, 100};
  for (int step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(step, schedule), 1e-4 * (step + 1));
  EXPECT_DOUBLE_EQ(learning_rate(10, schedule), 1e-3);
}

TEST(Schedule, CosineEndsAtTheMinimumAndStays) {
  const Schedule schedule{1e-3, 0.1, 10, 110};
  EXPECT_DOUBLE_EQ(learning_rate(60, schedule), 0.55e-3);  // halfway
  EXPECT_NEAR(learning_rate(35, schedule), 1e-4 + 0.5 * (1 + std::sqrt(0.5)) * 9e-4,
              1e-15);  // a quarter
  for (int64_t step : {int64_t{110}, int64_t{111}, int64_t{1} << 40})
    EXPECT_DOUBLE_EQ(learning_rate(step, schedule), 1e-4);
  for (int step = 10; step < 110; ++step)
    EXPECT_GT(learning_rate(step, schedule), learning_rate(step + 1, schedule));
}

TEST(Schedule, Edges) {
  EXPECT_NEAR(learning_rate(0, {1e-3, 0.1, 0, 100}), 1e-3, 1e-15);  // no warm-up
  EXPECT_DOUBLE_EQ(learning_rate(9, {1e-3, 0.1, 10, 10}), 1e-3);    // only warm-up
  EXPECT_DOUBLE_EQ(learning_rate(10, {1e-3, 0.1, 10, 10}), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(50, {1e-3, 1, 0, 100}), 1e-3);  // constant
  EXPECT_EQ(learning_rate(100, {1e-3, 0, 0, 100}), 0);
}

TEST(Schedule, AutomaticWarmUp) {
  EXPECT_EQ(automatic_warmup(10), 0);
  EXPECT_EQ(automatic_warmup(1000), 50);
  EXPECT_EQ(automatic_warmup(1'000'000), 2000);
}

}  // namespace
}  // namespace octavo::optim

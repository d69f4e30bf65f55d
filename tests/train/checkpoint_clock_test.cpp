#include "train/state/checkpoint_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace octavo::train {
namespace {

using std::chrono::seconds;
using Clock = CheckpointClock::Clock;

// The share of time that is lost with an interval: saves, and half an interval for each failure.
double lost(double interval, double save, double between) {
  return save / interval + interval / 2 / between;
}

TEST(CheckpointClock, LosesLeast) {
  for (const double save : {1.0, 5.0, 20.0})
    for (const double between : {3600.0, 40'000.0, 200'000.0}) {
      const double found = young_daly_seconds(save, between);
      if (found == 3600 || found == 60 || found == 20 * save) continue;  // at a bound
      for (const double other : {0.5, 0.9, 1.1, 2.0})
        EXPECT_LE(lost(found, save, between), lost(other * found, save, between))
            << save << " " << between << " " << other;
    }
}

TEST(CheckpointClock, Bounds) {
  EXPECT_EQ(young_daly_seconds(10, 1.8e8), 3600);  // one GPU: hours between failures
  EXPECT_EQ(young_daly_seconds(0.01, 100), 60);
  EXPECT_EQ(young_daly_seconds(600, 3600), 12'000);  // saves of ten minutes: a twentieth
  EXPECT_NEAR(young_daly_seconds(10, 360'000), std::sqrt(2 * 10 * 360'000.0), 1e-9);
}

TEST(CheckpointClock, IsDue) {
  const Clock::time_point start{};
  CheckpointClock clock(2, 1e6, start);
  EXPECT_FALSE(clock.is_due(0, start + seconds(119)));
  EXPECT_TRUE(clock.is_due(0, start + seconds(120)));
  clock.on_save(start + seconds(100));
  EXPECT_FALSE(clock.is_due(0, start + seconds(120)));
  EXPECT_TRUE(clock.is_due(0, start + seconds(220)));
  EXPECT_FALSE(CheckpointClock(0, 1e6, start).is_due(0, start + seconds(1'000'000)));
  const CheckpointClock automatic(-1, 20'000, start);
  const double interval = automatic.interval(4);
  EXPECT_NEAR(interval, 400, 1e-9);
  EXPECT_TRUE(automatic.is_due(4, start + seconds(401)));
  EXPECT_FALSE(automatic.is_due(4, start + seconds(399)));
}

TEST(CheckpointClock, IsAsTheSettingsAskForIt) {
  config::Settings settings;
  settings.checkpoint_freq = 100;
  settings.checkpoint_minutes = -1;
  settings.gpu_hours_per_failure = 1000;
  const double alone = save_clock_of(settings, 1, {})->interval(20);
  EXPECT_NEAR(alone, std::min(3600.0, std::sqrt(2 * 20 * 3.6e6)), 1e-9);
  EXPECT_NEAR(save_clock_of(settings, 1024, {})->interval(20), 20 / 0.05, 1e-9);  // a twentieth
  EXPECT_NEAR(save_clock_of(settings, 16, {})->interval(20), std::sqrt(2 * 20 * 3.6e6 / 16), 1e-9);
  settings.checkpoint_freq = 0;
  EXPECT_FALSE(save_clock_of(settings, 16, {}));  // nothing before the end
  settings.checkpoint_minutes = 5;
  EXPECT_EQ(save_clock_of(settings, 16, {})->interval(20), 300);
}

}  // namespace
}  // namespace octavo::train

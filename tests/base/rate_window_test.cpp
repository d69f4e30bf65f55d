#include "base/rate_window.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(RateWindow, IsTheRateOfTheLastPart) {
  RateWindow window;
  EXPECT_EQ(window.rate(), 0);
  window.add(0, 0);
  EXPECT_EQ(window.rate(), 0);
  window.add(3, 0.25);  // too near for a mark of its own, and known all the same
  EXPECT_DOUBLE_EQ(window.rate(), 12);
  double done = 3, seconds = 0.25;
  for (int i = 0; i < 1000; ++i) window.add(done += 1, seconds += 8);
  EXPECT_DOUBLE_EQ(window.rate(), 0.125);
  for (int i = 0; i < 128; ++i) window.add(done += 4, seconds += 1);
  EXPECT_DOUBLE_EQ(window.rate(), 4) << "what was slow is forgotten";
}

TEST(RateWindow, NothingDoneIsNoRate) {
  RateWindow window;
  for (int i = 0; i < 300; ++i) window.add(7, i);
  EXPECT_EQ(window.rate(), 0);
}

}  // namespace
}  // namespace octavo

#include "launch/pulse_watch.h"

#include <gtest/gtest.h>

namespace octavo::launch {
namespace {

using std::chrono::seconds;
using Clock = PulseWatch::Clock;

void set(RankPage& page, int64_t pulse, int64_t limit_seconds) {
  page.layout = kRankPageLayout;
  page.pulse = pulse;
  page.hang_limit = limit_seconds * 1'000'000'000;
}

TEST(PulseWatch, ASilentRankIsFoundOnceWithinItsLimit) {
  RankPage page;
  PulseWatch watch;
  const Clock::time_point start{seconds(1000)};
  set(page, 5, 60);
  int found = 0;
  double when = 0;
  for (int s = 0; s < 200; ++s)
    if (watch.look(start + seconds(s), page)) ++found, when = s;
  EXPECT_EQ(found, 1);
  EXPECT_GE(when, 44);
  EXPECT_LE(when, 50);
}

TEST(PulseWatch, APulseBeginsAnew) {
  RankPage page;
  PulseWatch watch;
  const Clock::time_point start{seconds(1000)};
  for (int s = 0; s < 500; ++s) {
    if (s % 40 == 0) set(page, s, 60);
    EXPECT_FALSE(watch.look(start + seconds(s), page)) << s;
  }
}

// It says nothing before its first step, and with hang_timeout 0; a page of others means nothing.
TEST(PulseWatch, WhoPromisesNoPulseIsNotWatched) {
  RankPage page;
  PulseWatch watch;
  const Clock::time_point start{seconds(1000)};
  for (const auto& [layout, limit] : {std::pair{kRankPageLayout, int64_t{0}},
                                      {kRankPageLayout, int64_t{-60}},
                                      {7u, int64_t{60}}}) {
    set(page, 5, limit);
    page.layout = layout;
    EXPECT_EQ(PulseWatch::interval(page).count(), 1000);
    for (int s = 0; s < 200; ++s) EXPECT_FALSE(watch.look(start + seconds(s), page));
  }
}

TEST(PulseWatch, ALauncherThatStoodStillBlamesNobody) {
  RankPage page;
  PulseWatch watch;
  const Clock::time_point start{seconds(1000)};
  set(page, 5, 60);
  EXPECT_FALSE(watch.look(start, page));
  EXPECT_FALSE(watch.look(start + seconds(5000), page));
}

}  // namespace
}  // namespace octavo::launch

// Ranks that wait for others: a signal reaches them.

#include "base/signals.h"
#include "dist/world.h"
#include "ranks.h"

namespace octavo::dist {
namespace {

void sleep_until_killed() {
  std::this_thread::sleep_for(seconds(60));
}

TEST(Connect, AStopEndsTheWaitForARankThatNeverComes) {
  for (const bool hosted : {true, false}) {
    Ranks ranks(3, hosted, [](const launch::RankInfo& rank_info) {
      if (rank_info.rank == 2) sleep_until_killed();
      install_stop_handlers();
      World::connect(rank_info, {.timeout = seconds(50)});
    });
    ASSERT_TRUE(ranks.has_said(0, "2 of 3 ranks are here")) << ranks.said(0);
    const auto start = std::chrono::steady_clock::now();
    ranks.signal(0, SIGTERM);
    EXPECT_EQ(ranks.end_of(0, seconds(10)), 75) << ranks.said(0);
    EXPECT_NE(ranks.said(0).find("asked to stop (SIGTERM)"), std::string::npos) << ranks.said(0);
    ranks.end_of(1, seconds(15));  // it hears of it, and does not wait for the time-out
    EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
  }
}

TEST(Connect, AStopEndsTheWaitForAStoreThatNeverComes) {
  Ranks ranks(1, true, [](const launch::RankInfo& rank_info) {
    install_stop_handlers();
    launch::RankInfo second = rank_info;
    second.rank = 1;
    second.ranks = 2;
    second.master_port = free_port();  // nobody listens there
    log_info("begins");
    World::connect(second, {.timeout = seconds(50)});
  });
  ASSERT_TRUE(ranks.has_said(0, "begins"));
  ranks.signal(0, SIGTERM);
  EXPECT_EQ(ranks.end_of(0, seconds(10)), 75) << ranks.said(0);
}

TEST(Connect, ARankThatNeverComesIsNamedAfterTheTimeout) {
  Ranks ranks(2, true, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank == 1) sleep_until_killed();
    World::connect(rank_info, {.timeout = milliseconds(1500)});
  });
  EXPECT_EQ(ranks.end_of(0, seconds(20)), 3);
  EXPECT_NE(ranks.said(0).find("rank 1 is lost"), std::string::npos) << ranks.said(0);
}

}  // namespace
}  // namespace octavo::dist

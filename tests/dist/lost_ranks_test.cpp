// Ranks that are killed, stand still or leave by themselves, and what the others say of it.

#include "dist/lost_ranks.h"

#include <ATen/ATen.h>

#include "dist/gloo.h"
#include "ranks.h"
#include "rendezvous/client.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

// Sums in a ring for ever, as a training does; `timeout` of one collective.
void train_for_ever(const launch::RankInfo& rank_info, milliseconds timeout, int leaver = -1,
                    ExitCode code = ExitCode::kGuard) {
  Rendezvous joined = join_rendezvous(rank_info, seconds(20));
  const auto gloo =
      make_gloo(joined.store, rank_info.rank, rank_info.ranks, {"127.0.0.1", timeout});
  for (int step = 0;; ++step) {
    const std::string name = str("all-reduce of layers.3 (#", step, ", group all)");
    try {
      std::vector<at::Tensor> sum = {at::ones({5000})};
      gloo->allreduce(sum)->wait();
    } catch (const std::exception& error) {
      fail_lost(joined, rank_info, name, step, error.what());
    }
    if (step == 5) log_info("under way");
    if (step > 5 && rank_info.rank == leaver) {
      announce_exit(joined, rank_info, "[train] the loss is not finite", code);
      fail(code, "train", "the loss is not finite");
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
}

void expect_named(Ranks& ranks, int count, int lost, const std::string& part) {
  for (int rank = 0; rank < count; ++rank) {
    if (rank == lost) continue;
    EXPECT_EQ(ranks.end_of(rank, seconds(10)), 3) << ranks.said(rank);
    const std::string said = ranks.said(rank);
    EXPECT_NE(said.find(part), std::string::npos) << "rank " << rank << ": " << said;
    EXPECT_NE(said.find("all-reduce of layers.3 (#"), std::string::npos) << said;
  }
}

// A killed rank under torchrun: the store is its agent's, here a process that does nothing else.
TEST(Lost, AKilledRankIsNamedThroughTorchrunsStore) {
  Ranks ranks(4, false, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank == 0) host_torch_store(rank_info.master_port);
    launch::RankInfo worker = rank_info;
    worker.store_is_torch = true;
    worker.rank -= 1;
    worker.ranks -= 1;
    train_for_ever(worker, seconds(60));
  });
  ASSERT_TRUE(ranks.has_said(2, "under way"));
  ranks.signal(2, SIGKILL);
  for (const int process : {1, 3}) {
    EXPECT_EQ(ranks.end_of(process, seconds(10)), 3) << ranks.said(process);
    EXPECT_NE(ranks.said(process).find("rank 1 is lost"), std::string::npos) << ranks.said(process);
  }
}

TEST(Lost, WhatTheLauncherKnowsIsSaidAtOnce) {
  Ranks ranks(3, true,
              [](const launch::RankInfo& rank_info) { train_for_ever(rank_info, seconds(60)); });
  ASSERT_TRUE(ranks.has_said(1, "under way"));
  const auto start = std::chrono::steady_clock::now();
  ranks.signal(1, SIGKILL);
  rendezvous::Client("127.0.0.1", ranks.port(), "", seconds(5))
      .set(rendezvous::dead_key(1), "killed by signal 9");
  expect_named(ranks, 3, 1, "rank 1 is lost: killed by signal 9");
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(2400));
}

TEST(Lost, AStoppedRankIsNamedAfterTheTimeout) {
  Ranks ranks(4, true,
              [](const launch::RankInfo& rank_info) { train_for_ever(rank_info, seconds(1)); });
  ASSERT_TRUE(ranks.has_said(3, "under way"));
  ranks.signal(3, SIGSTOP);
  expect_named(ranks, 4, 3, "rank 3 is lost");
}

TEST(Lost, RankZeroWithTheStoreIsNamed) {
  Ranks ranks(3, false,
              [](const launch::RankInfo& rank_info) { train_for_ever(rank_info, seconds(60)); });
  ASSERT_TRUE(ranks.has_said(0, "under way"));
  ranks.signal(0, SIGKILL);
  expect_named(ranks, 3, 0, "rank 0 at 127.0.0.1");
}

TEST(Lost, RankZeroWithTheStoreNamesOthers) {
  Ranks ranks(4, false,
              [](const launch::RankInfo& rank_info) { train_for_ever(rank_info, seconds(60)); });
  ASSERT_TRUE(ranks.has_said(1, "under way"));
  ranks.signal(1, SIGKILL);
  expect_named(ranks, 4, 1, "rank 1 is lost");
}

TEST(Lost, ARankThatLeavesSaysWhy) {
  Ranks ranks(4, true,
              [](const launch::RankInfo& rank_info) { train_for_ever(rank_info, seconds(60), 1); });
  EXPECT_EQ(ranks.end_of(1, seconds(20)), 4) << ranks.said(1);
  expect_named(ranks, 4, 1, "rank 1 left: [train] the loss is not finite");
  EXPECT_EQ(ranks.said(0).find("is lost"), std::string::npos) << ranks.said(0);
}

int times(const std::string& text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What rank 0 says of a mistake: the reason once, in a line of its own, which is there before the
// line with which rank 0 ends.
void expect_said_first(const std::string& said) {
  const std::string why = "left, for wrong use or configuration";
  EXPECT_EQ(times(said, "the loss is not finite"), 1) << said;
  const size_t reason = said.find("rank 1 " + why + ": [train] the loss is not finite\n");
  ASSERT_NE(reason, said.npos) << said;
  EXPECT_GT(said.find("rank 1 " + why + ", and says which; "), reason) << said;
  EXPECT_GE(times(said, why), 2) << said;
}

// Wrong use is said once by the rank that found it, once by rank 0, and by no other, at whatever
// place these wait for it.
TEST(Lost, AMistakeOfTheUserIsNotRepeated) {
  Ranks ranks(3, true, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank > 0) set_log_level(LogLevel::kWarn);  // as train does
    if (rank_info.rank < 2) return train_for_ever(rank_info, seconds(60), 1, ExitCode::kUsage);
    const Rendezvous joined = join_rendezvous(rank_info, seconds(20));
    const auto gloo =
        make_gloo(joined.store, rank_info.rank, rank_info.ranks, {"127.0.0.1", seconds(60)});
    std::vector<at::Tensor> sum = {at::ones({5000})};
    try {
      for (int step = 0; step < 7; ++step) gloo->allreduce(sum)->wait();
    } catch (const std::exception& error) {
      log_info(error.what());  // rank 1 may be gone before this one has read all of the last sum
    }
    std::this_thread::sleep_for(seconds(60));  // where the watch ends it
  });
  EXPECT_EQ(ranks.end_of(1, seconds(20)), 2) << ranks.said(1);
  EXPECT_EQ(times(ranks.said(1), "the loss is not finite"), 1) << ranks.said(1);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks.end_of(rank, seconds(10)), 3) << ranks.said(rank);
    EXPECT_EQ(ranks.said(rank).find("is lost"), std::string::npos) << ranks.said(rank);
  }
  expect_said_first(ranks.said(0));
  EXPECT_EQ(ranks.said(2).find("rank 1"), std::string::npos) << ranks.said(2);
}

// What ends the process before main can print the mistake says it: the watch, of a rank that hangs
// while it leaves.
TEST(Lost, AMistakeIsSaidByARankThatHangsWhileItLeaves) {
  Ranks ranks(2, true, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank == 0) return train_for_ever(rank_info, seconds(60));
    set_log_level(LogLevel::kWarn);  // as train does
    Rendezvous joined = join_rendezvous(rank_info, seconds(20));
    const auto gloo =
        make_gloo(joined.store, rank_info.rank, rank_info.ranks, {"127.0.0.1", seconds(60)});
    announce_exit(joined, rank_info, "[train] the loss is not finite", ExitCode::kUsage);
    std::this_thread::sleep_for(seconds(60));
  });
  EXPECT_EQ(ranks.end_of(1, seconds(30)), 2) << ranks.said(1);
  EXPECT_EQ(ranks.end_of(0, seconds(10)), 3) << ranks.said(0);
  expect_said_first(ranks.said(0));
  EXPECT_EQ(times(ranks.said(1), "the loss is not finite"), 1) << ranks.said(1);
}

// As the one that uploads the last checkpoint while the nodes of the others go.
TEST(Lost, ARankThatNeedsNobodyGoesOn) {
  Ranks ranks(2, true, [](const launch::RankInfo& rank_info) {
    const Rendezvous joined = join_rendezvous(rank_info, seconds(20));
    if (rank_info.rank == 0) joined.watch->set_alone();
    log_info("under way");
    std::this_thread::sleep_for(seconds(rank_info.rank == 0 ? 4 : 60));
  });
  ASSERT_TRUE(ranks.has_said(0, "under way") && ranks.has_said(1, "under way"));
  rendezvous::Client("127.0.0.1", ranks.port(), "", seconds(5))
      .compare_set(rendezvous::alarm_key(0), "", "rank 1 was killed by signal 9");
  EXPECT_EQ(ranks.end_of(1, seconds(10)), 3) << ranks.said(1);
  EXPECT_EQ(ranks.end_of(0, seconds(20)), 0) << ranks.said(0);
  EXPECT_NE(ranks.said(0).find("goes on"), std::string::npos) << ranks.said(0);
}

// A rank that hangs outside of any collective still answers, and is ended by its watch. Nobody else
// fails here (they wait for the one that hangs), so it is the launcher that raises the alarm.
TEST(Lost, ARankThatHangsIsEndedAndNotTakenForTheLostOne) {
  Ranks ranks(3, true, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank != 0) return train_for_ever(rank_info, seconds(60));
    const Rendezvous joined = join_rendezvous(rank_info, seconds(20));
    const auto gloo =
        make_gloo(joined.store, rank_info.rank, rank_info.ranks, {"127.0.0.1", seconds(60)});
    log_info("under way");
    std::this_thread::sleep_for(seconds(60));
  });
  ASSERT_TRUE(ranks.has_said(0, "under way"));
  ranks.signal(2, SIGKILL);
  rendezvous::Client launcher("127.0.0.1", ranks.port(), "", seconds(5));
  launcher.set(rendezvous::dead_key(2), "killed by signal 9");
  launcher.compare_set(rendezvous::alarm_key(0), "", "rank 2 was killed by signal 9");
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.end_of(rank, seconds(10)), 3) << ranks.said(rank);
    EXPECT_NE(ranks.said(rank).find("rank 2 is lost: killed by signal 9"), std::string::npos)
        << ranks.said(rank);
  }
  EXPECT_NE(ranks.said(0).find("did not end by itself"), std::string::npos) << ranks.said(0);
}

}  // namespace
}  // namespace octavo::dist

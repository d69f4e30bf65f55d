#include "launch/membership.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "expect_failure.h"

namespace octavo::launch {
namespace {

using Nodes = std::vector<int>;

config::Settings launch_settings(int64_t least, int64_t most, int64_t spares = 0) {
  config::Settings s;
  s.least_nodes = least;
  s.nnodes = most;
  s.spares = spares;
  s.max_restarts = 5;
  return s;
}

config::Settings train_settings(int64_t batch, int64_t accumulation, int64_t target = 0) {
  config::Settings s;
  s.batch_size = batch;
  s.gradient_accumulation_steps = accumulation;
  s.target_effective_batch_size = target;
  return s;
}

TEST(Membership, ARunOfOneSizeIsNotElastic) {
  config::Settings s;
  s.nnodes = 4;
  const Elastic elastic = elastic_of(s, train_settings(2, 1), 8);
  EXPECT_FALSE(elastic.on());
  EXPECT_EQ(elastic.slots(), 4);
}

TEST(Membership, ASampleCountIsThatOfAllNodes) {
  const Elastic all = elastic_of(launch_settings(1, 4), train_settings(2, 3), 2);
  EXPECT_TRUE(all.on());
  EXPECT_EQ(all.samples, 48);
  EXPECT_EQ(all.passes, 24);
  EXPECT_EQ(numbers_taken(all), "1, 2, 3, 4");
  const Elastic given = elastic_of(launch_settings(1, 4), train_settings(4, 1, 32), 2);
  EXPECT_EQ(given.samples, 32);
  EXPECT_EQ(given.passes, 8);
  EXPECT_EQ(numbers_taken(given), "1, 2, 4");  // 8 passes do not go into 6 ranks
  // Passes that do not divide the samples are made smaller by the ranks.
  EXPECT_EQ(elastic_of(launch_settings(1, 2), train_settings(5, 1, 32), 2).passes, 32);
}

// The number that the warning names is one that MIN and MAX share, also in passes of other sizes.
TEST(Membership, ARangeWhoseLeastCannotShareAStepIsSaid) {
  for (const auto& [least, most, ranks, given] :
       {std::tuple(6, 8, 8, train_settings(4, 1)), {4, 5, 1, train_settings(4, 1, 10)}}) {
    testing::internal::CaptureStderr();
    elastic_of(launch_settings(least, most), given, ranks);
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string flag = "--target_effective_batch_size ";
    const size_t at = said.find(flag);
    ASSERT_NE(at, said.npos) << said;
    config::Settings taken = given;
    taken.target_effective_batch_size = std::stoll(said.substr(at + flag.size()));
    const Elastic elastic = elastic_of(launch_settings(least, most), taken, ranks);
    EXPECT_TRUE(elastic.takes(least) && elastic.takes(most)) << said;
  }
}

TEST(Membership, WhatCannotBeKeptIsRefused) {
  config::Settings automatic = train_settings(1, 1);
  automatic.auto_batch_size = true;
  expect_failure(ExitCode::kUsage, "target_effective_batch_size",
                 [&] { elastic_of(launch_settings(1, 2), automatic, 2); });
  automatic.target_effective_batch_size = 12;
  EXPECT_EQ(elastic_of(launch_settings(1, 2), automatic, 2).passes, 12);
  expect_failure(ExitCode::kUsage, "found none",
                 [] { elastic_of(launch_settings(2, 3), train_settings(1, 1, 7), 2); });
  config::Settings without = launch_settings(1, 2);
  without.max_restarts = 0;
  expect_failure(ExitCode::kUsage, "--max_restarts 10",
                 [&] { elastic_of(without, train_settings(1, 1), 2); });
  expect_failure(ExitCode::kUsage, "--nnodes",
                 [] { elastic_of(launch_settings(0, 0, 1), train_settings(1, 1), 2); });
}

TEST(Membership, TheLargestUsableNumberIsTaken) {
  const Elastic elastic = elastic_of(launch_settings(1, 4), train_settings(4, 1, 32), 2);
  const Members three = chosen_members(elastic, Nodes{0, 1, 3}, Nodes{0, 1, 2, 3});
  EXPECT_EQ(three.nodes, (Nodes{0, 1}));
  EXPECT_EQ(three.idle, Nodes{3});
  EXPECT_EQ(described(elastic, three),
            "nodes 0 and 1: 4 ranks, each 2 passes of a step's 32 samples; node 3 waits beside "
            "them");
  const Members four = chosen_members(elastic, Nodes{0, 1, 2, 3}, three.nodes);
  EXPECT_EQ(four.nodes, (Nodes{0, 1, 2, 3}));
  EXPECT_TRUE(four.idle.empty());
  EXPECT_EQ(chosen_members(elastic, Nodes{0}, three.nodes).nodes, Nodes{0});
}

TEST(Membership, TooFewAreNone) {
  const Elastic elastic = elastic_of(launch_settings(2, 4), train_settings(2, 3), 2);
  EXPECT_TRUE(chosen_members(elastic, Nodes{0}, Nodes{0, 1}).nodes.empty());
  EXPECT_TRUE(chosen_members(elastic, Nodes{}, Nodes{}).nodes.empty());
  EXPECT_TRUE(chosen_members(elastic, Nodes{1, 2, 3}, Nodes{}).nodes.empty());  // no node 0
  EXPECT_EQ(chosen_members(elastic, Nodes{0, 2}, Nodes{}).nodes, (Nodes{0, 2}));
}

TEST(Membership, SparesTakeThePlaceOfTheLost) {
  const Elastic elastic = elastic_of(launch_settings(0, 2, 2), train_settings(2, 1), 2);
  EXPECT_TRUE(elastic.on());
  EXPECT_EQ(elastic.least, 2);
  EXPECT_EQ(elastic.slots(), 4);
  const Members all = chosen_members(elastic, Nodes{0, 1, 2, 3}, {});
  EXPECT_EQ(all.nodes, (Nodes{0, 1}));
  EXPECT_EQ(all.idle, (Nodes{2, 3}));
  const Members later = chosen_members(elastic, Nodes{0, 2, 3}, all.nodes);
  EXPECT_EQ(later.nodes, (Nodes{0, 2}));
  // Who has ranks keeps them when the other is back.
  EXPECT_EQ(chosen_members(elastic, Nodes{0, 1, 2, 3}, later.nodes).nodes, (Nodes{0, 2}));
}

// Every set of nodes that can be there, of every size of step: never more than MAX, never fewer
// than MIN, no node twice, all ranks with the same whole number of passes, and none left out that
// could have been taken.
TEST(Membership, HoldsForEverySet) {
  for (int64_t passes = 1; passes <= 24; ++passes)
    for (int least = 1; least <= 4; ++least)
      for (int there = 0; there < 64; ++there) {
        const Elastic elastic{.least = least,
                              .most = 4,
                              .spares = 2,
                              .local_ranks = 2,
                              .samples = 0,
                              .passes = passes};
        Nodes alive;
        for (int node = 0; node < 6; ++node)
          if ((there >> node & 1) != 0) alive.push_back(node);
        const Members members = chosen_members(elastic, alive, Nodes{0, 5, 2});
        const int count = static_cast<int>(members.nodes.size());
        ASSERT_EQ(members.nodes.size() + members.idle.size(), alive.size());
        std::set<int> all(members.nodes.begin(), members.nodes.end());
        all.insert(members.idle.begin(), members.idle.end());
        ASSERT_EQ(all, std::set<int>(alive.begin(), alive.end()));
        if (count > 0) {
          ASSERT_EQ(members.nodes.front(), 0);
          ASSERT_GE(count, least);
          ASSERT_LE(count, 4);
          ASSERT_EQ(passes % (2 * count), 0);
        }
        const bool has_first = (there & 1) != 0;
        for (int more = std::max(count + 1, least); more <= std::min(4, int(alive.size())); ++more)
          ASSERT_TRUE(passes % (2 * more) != 0 || !has_first);
      }
}

TEST(Membership, RanksFollowThePlaceAmongTheNodes) {
  const RankInfo own{.rank = 6, .ranks = 8, .local_ranks = 2, .node = 3, .nodes = 4};
  const RankInfo place = place_among(own, Nodes{0, 2, 3});
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.nodes, 3);
  EXPECT_EQ(place.rank, 4);
  EXPECT_EQ(place.ranks, 6);
  EXPECT_EQ(place.local_ranks, 2);
}

}  // namespace
}  // namespace octavo::launch

// All ranks as a tree of groups: every rank is reached, by few.

#include "dist/group_tree.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

#include "base/heartbeat.h"
#include "dist/ranks.h"
#include "dist/world.h"

namespace octavo::dist {
namespace {

TEST(GroupTree, LevelsGrowWithTheLogarithm) {
  for (const auto& [ranks, levels] : std::map<int, int>{
           {1, 1}, {2, 1}, {8, 1}, {9, 2}, {64, 2}, {65, 3}, {512, 3}, {513, 4}, {16384, 5}})
    EXPECT_EQ(GroupTree::levels(ranks), levels) << ranks;
}

// Members of a group agree on it, and each group's first rank is the one that the next level has.
TEST(GroupTree, GroupsCoverAllRanks) {
  for (const int ranks : {2, 7, 8, 9, 16, 63, 65, 100, 513, 1000}) {
    std::map<std::pair<int, int>, std::vector<int>> members;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto places = GroupTree::places(rank, ranks);
      ASSERT_FALSE(places.empty());
      for (const GroupTree::Place& it : places) {
        EXPECT_EQ(it.first + it.rank * it.stride, rank);
        EXPECT_LE(it.size, GroupTree::kWidth);
        members[{it.level, it.number}].push_back(rank);
        EXPECT_EQ(it.level, &it - places.data());
      }
    }
    std::set<int> below;
    for (int rank = 0; rank < ranks; ++rank) below.insert(rank);
    for (int level = 0; level < GroupTree::levels(ranks); ++level) {
      std::set<int> seen, leaders;
      for (const auto& [key, group] : members) {
        if (key.first != level) continue;
        const auto places = GroupTree::places(group[0], ranks);
        EXPECT_EQ(static_cast<size_t>(places[static_cast<size_t>(level)].size), group.size());
        seen.insert(group.begin(), group.end());
        leaders.insert(group[0]);
      }
      EXPECT_EQ(seen, below) << ranks << " ranks, level " << level;
      below = leaders;
    }
    EXPECT_EQ(below, std::set<int>{0});
  }
}

void require_that(bool holds, const char* what) {
  if (!holds) fail(ExitCode::kDamaged, "test", what);
}

TEST(GroupTree, AWorldOfTwoLevelsAgrees) {
  constexpr int kRanks = 11;
  Ranks ranks(kRanks, true, [](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(60), .tensors = false});
    const int64_t begun = heartbeat::beats().collectives;
    at::Tensor sum = at::full({2}, world.rank() + 1, at::kLong);
    world.sum(sum, "sum");
    require_that(sum.eq(kRanks * (kRanks + 1) / 2).all().item<bool>(), "the sum of all ranks");
    at::Tensor largest = at::full({1}, -1.0 - world.rank(), at::kDouble);
    world.max(largest, "largest");
    require_that(largest.item<double>() == -1, "the largest of all ranks");
    // As far as all others, whatever its part in them was.
    const int64_t own[] = {world.rank(), heartbeat::beats().collectives - begun};
    const at::Tensor all = world.from_all(own, "all");
    for (int rank = 0; rank < kRanks; ++rank)
      require_that(all[rank][0].item<int64_t>() == rank && all[rank][1].item<int64_t>() == own[1],
                   "what every rank gave");
    require_that(
        world.from_first(world.is_first() ? "the first" : "another", "text") == "the first",
        "from_first");
    require_that(world.usage().on_host == 4, "calls");
    // Bits, not sums: what is added up in another order elsewhere would differ.
    at::Tensor parts = at::full({1}, 1.0 / (3 + world.rank()), at::kDouble);
    world.sum(parts, "parts");
    at::Tensor least = -parts;
    world.max(least, "least");
    require_that(-least.item<double>() == parts.item<double>(), "the same bits everywhere");
    world.barrier("the end");
  });
  for (int r = 0; r < kRanks; ++r) EXPECT_EQ(ranks.end_of(r, seconds(60)), 0) << ranks.said(r);
}

TEST(GroupTree, ALostRankOfAnotherGroupIsNamed) {
  constexpr int kRanks = 10;
  Ranks ranks(kRanks, true, [](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(4), .tensors = false});
    if (rank_info.rank == 9) ::_exit(9);
    world.barrier("the end");
  });
  EXPECT_EQ(ranks.end_of(9, seconds(60)), 9);
  for (const int r : {0, 3, 8}) {
    EXPECT_EQ(ranks.end_of(r, seconds(30)), 3);
    EXPECT_NE(ranks.said(r).find("rank 9 is lost"), std::string::npos) << ranks.said(r);
  }
}

}  // namespace
}  // namespace octavo::dist

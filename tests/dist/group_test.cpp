// Groups and worlds of real processes over Gloo.

#include "dist/group.h"

#include <ATen/ATen.h>

#include "dist/ranks.h"
#include "dist/world.h"

namespace octavo::dist {
namespace {

void want(bool holds, const char* what) {
  if (!holds) fail(ExitCode::kDamaged, "test", what);
}

void finish(Ranks& ranks, int count) {
  for (int r = 0; r < count; ++r) EXPECT_EQ(ranks.end_of(r, seconds(30)), 0) << ranks.said(r);
}

TEST(Groups, OfOneDoesNothing) {
  World world;
  at::Tensor x = at::ones({3});
  world.sum(x, "x");
  EXPECT_TRUE(x.equal(at::ones({3})));
  EXPECT_EQ(world.shards(), 1);
  EXPECT_EQ(world.from_first("text", "t"), "text");
  at::Tensor out = at::zeros({3});
  world.gathering().all_gather("x", {out}, {x}).wait();
  EXPECT_TRUE(out.equal(x));
  EXPECT_EQ(world.gathering().usage().gather.calls, 0);
}

TEST(Worlds, ARankThatWasToldOtherwiseIsRefused) {
  constexpr int kRanks = 3;
  Ranks ranks(kRanks, true, [](const launch::RankInfo& rank_info) {
    const bool odd = rank_info.rank == 2;
    World::connect(rank_info, {.timeout = seconds(20),
                               .settings = odd ? "seed: 1\nlearning_rate: 0.01\nmax_steps: 3\n"
                                               : "seed: 1\nlearning_rate: 0.001\nmax_steps: 3\n"});
  });
  EXPECT_EQ(ranks.end_of(2, seconds(30)), static_cast<int>(ExitCode::kUsage)) << ranks.said(2);
  const std::string said = ranks.said(2);
  EXPECT_NE(said.find("learning_rate: 0.01 (the first rank has 0.001)"), said.npos) << said;
  EXPECT_EQ(said.find("seed"), said.npos) << said;
}

TEST(Groups, GatherReduceAndCount) {
  constexpr int kRanks = 3;
  Ranks ranks(kRanks, true, [](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(20)});
    const auto r = static_cast<double>(world.rank());
    // In place: an input is its own part of the output.
    at::Tensor whole = at::zeros({6, 2});
    at::Tensor own = whole.narrow(0, 2 * world.rank(), 2).fill_(r + 1);
    world.gathering().all_gather("whole", {whole}, {own}).wait();
    want(whole.equal(
             at::tensor({1., 1., 2., 2., 3., 3.}).to(at::kFloat).unsqueeze(1).expand({6, 2})),
         "all-gather");
    at::Tensor sum = whole.clone();
    world.reducing().reduce_scatter("whole", {sum.narrow(0, 2 * world.rank(), 2)}, {sum}).wait();
    want(sum.narrow(0, 2 * world.rank(), 2).eq(3 * (r + 1)).all().item<bool>(), "reduce-scatter");
    at::Tensor a = at::full({4}, r), b = at::full({5}, -r);
    world.reducing().all_reduce("both", {a, b}).wait();
    want(a.eq(3).all().item<bool>() && b.eq(-3).all().item<bool>(), "all-reduce");
    at::Tensor largest = at::full({1}, r);
    world.max(largest, "largest");
    want(largest.item<float>() == 2, "max");
    want(world.from_first(world.is_first() ? "the first" : "another", "text") == "the first",
         "from_first");
    // At both ends of what comes with the first message, and behind it.
    for (const size_t length : {0, 1, 247, 248, 249, 100'000}) {
      std::string text(length, 'x');
      if (length > 0) text.back() = '!';
      want(world.from_first(world.is_first() ? text : "another", "text") == text, "from_first");
    }
    const World::Usage usage = world.usage();
    want(usage.gathering.gather.calls == 1 && usage.gathering.gather.bytes == 2 * 16,
         "gathered bytes");
    want(usage.reducing.reduce.bytes == 2 * 16, "reduced bytes");
    want(usage.reducing.all_reduce.bytes == 2.0 * 2 / 3 * (16 + 20), "all-reduced bytes");
    world.barrier("the end");
  });
  finish(ranks, kRanks);
}

TEST(Groups, TurnsAreTakenInOrder) {
  constexpr int kRanks = 3;
  const Scratch scratch;
  Ranks ranks(kRanks, true, [&](const launch::RankInfo& rank_info) {
    at::set_num_threads(1);
    World world = World::connect(rank_info, {.timeout = seconds(20)});
    const fs::path made = scratch / "made";
    world.rank_zero_first("something", [&] {
      want(fs::exists(made) == !world.is_first(), "the first rank goes first");
      if (world.is_first()) {
        std::this_thread::sleep_for(milliseconds(200));
        write_file_atomic(made, "x");
      }
    });
    world.barrier("the end");
  });
  finish(ranks, kRanks);
}

TEST(Groups, HybridHasAGroupInEachNodeAndOneAcross) {
  constexpr int kRanks = 4;
  Ranks ranks(kRanks, true, [](const launch::RankInfo& one_node) {
    at::set_num_threads(1);
    launch::RankInfo rank_info = one_node;
    rank_info.nodes = rank_info.local_ranks = 2;
    rank_info.node = rank_info.rank / 2;
    rank_info.local_rank = rank_info.rank % 2;
    World world = World::connect(rank_info, {.timeout = seconds(20), .hybrid = true});
    want(world.shards() == 2 && world.shard() == rank_info.local_rank, "shards are a node's ranks");
    at::Tensor x = at::full({1}, static_cast<double>(1 << (4 * rank_info.rank)), at::kDouble);
    at::Tensor inside = x.clone(), across = x.clone();
    world.reducing().all_reduce("inside", {inside}).wait();
    world.replicas().all_reduce("across", {across}).wait();
    want(inside.item<double>() == (rank_info.node == 0 ? 0x11 : 0x1100), "the sum of a node");
    want(across.item<double>() == (rank_info.local_rank == 0 ? 0x101 : 0x1010),
         "the sum over nodes");
    world.barrier("the end");
  });
  finish(ranks, kRanks);
}

}  // namespace
}  // namespace octavo::dist

// Our store under c10d: its own calls, and Gloo's connections through it.

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "dist/gloo.h"
#include "dist/rendezvous_store.h"
#include "ranks.h"

namespace octavo::dist {
namespace {

using Bytes = std::vector<uint8_t>;

// What both stores must do alike.
void expect_a_store(c10d::Store& store) {
  store.set("key", "value");
  EXPECT_EQ(store.get_to_str("key"), "value");
  EXPECT_EQ(store.add("number", 3), 3);
  EXPECT_EQ(store.add("number", 4), 7);
  EXPECT_EQ(store.get_to_str("number"), "7");
  EXPECT_TRUE(store.check({"key", "number"}));
  EXPECT_FALSE(store.check({"key", "nothing"}));
  EXPECT_EQ(store.compareSet("key", "other", "new"), "value");
  EXPECT_EQ(store.compareSet("key", "value", "new"), "new");
  EXPECT_EQ(store.compareSet("absent", "x", "new"), "x");
  EXPECT_EQ(store.compareSet("absent", "", "new"), "new");
  store.append("log", Bytes{1, 2});
  store.append("log", Bytes{0, 255});
  EXPECT_EQ(store.get("log"), (Bytes{1, 2, 0, 255}));
  store.multiSet({"a", "b"}, {Bytes{1}, Bytes{}});
  EXPECT_EQ(store.multiGet({"b", "a"}), (std::vector<Bytes>{{}, {1}}));
  EXPECT_TRUE(store.deleteKey("a"));
  EXPECT_FALSE(store.deleteKey("a"));
  EXPECT_TRUE(store.hasExtendedApi());
  EXPECT_GT(store.getNumKeys(), 3);
  store.wait({"key", "log"});
  EXPECT_THROW(store.wait({"never"}, milliseconds(50)), c10::DistStoreError);
  store.setTimeout(milliseconds(50));
  EXPECT_THROW(store.get("never"), c10::DistStoreError);
  store.barrier("alone", 1, seconds(5));
  const auto twin = store.clone();
  twin->set("from the twin", "1");
  EXPECT_EQ(store.get_to_str("from the twin"), "1");
}

TEST(Store, DoesWhatC10dAsks) {
  const rendezvous::Server server("127.0.0.1", 0, "");
  const auto client =
      std::make_shared<rendezvous::Client>("127.0.0.1", server.port(), "", seconds(5));
  RendezvousStore bare(client, seconds(5));
  expect_a_store(bare);
  c10d::PrefixStore under("prefix", c10::make_intrusive<RendezvousStore>(client, seconds(5)));
  expect_a_store(under);
}

// The same checks on torch's own store, so that they say what c10d expects and not what we do.
TEST(Store, AsTorchsOwn) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  c10d::PrefixStore torch("prefix", c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
  expect_a_store(torch);
}

TEST(Store, ErrorsAreC10ds) {
  auto server = std::make_unique<rendezvous::Server>("127.0.0.1", 0, "");
  const auto client =
      std::make_shared<rendezvous::Client>("127.0.0.1", server->port(), "", seconds(5));
  RendezvousStore store(client, seconds(5));
  store.set("word", "x");
  EXPECT_THROW(store.add("word", 1), c10::DistStoreError);
  server.reset();
  client->set_answer_timeout(milliseconds(100));
  EXPECT_THROW(store.check({"word"}), c10::DistNetworkError);
}

void all_reduce_once(const launch::RankInfo& rank_info) {
  const Rendezvous joined = join_rendezvous(rank_info, seconds(20));
  const auto gloo =
      make_gloo(joined.store, rank_info.rank, rank_info.ranks, {"127.0.0.1", seconds(20)});
  std::vector<at::Tensor> sum = {at::full({1000}, rank_info.rank + 1.0)};
  gloo->allreduce(sum)->wait();
  const double wanted = rank_info.ranks * (rank_info.ranks + 1) / 2.0;
  if (!sum[0].eq(wanted).all().item<bool>())
    fail(ExitCode::kDamaged, "test", "wanted ", wanted, ", found ", sum[0][0].item<double>());
  log_info("summed");
}

TEST(LaunchCoordinator, GlooConnectsThroughTheLaunchersStore) {
  Ranks ranks(4, true, all_reduce_once);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ranks.end_of(rank, seconds(30)), 0) << ranks.said(rank);
}

// Without a launcher rank 0 hosts the store, and leaves last.
TEST(LaunchCoordinator, GlooConnectsThroughRankZerosStore) {
  Ranks ranks(3, false, [](const launch::RankInfo& rank_info) {
    all_reduce_once(rank_info);
    if (rank_info.rank == 1) std::this_thread::sleep_for(milliseconds(300));
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.end_of(rank, seconds(30)), 0) << ranks.said(rank);
    EXPECT_EQ(ranks.said(rank).find("warning"), std::string::npos) << ranks.said(rank);
  }
}

TEST(LaunchCoordinator, GlooConnectsThroughTorchrunsStore) {
  Ranks ranks(3, false, [](const launch::RankInfo& rank_info) {
    if (rank_info.rank == 0) host_torch_store(rank_info.master_port);
    launch::RankInfo worker = rank_info;
    worker.store_is_torch = true;
    worker.rank -= 1;
    worker.ranks -= 1;
    all_reduce_once(worker);
  });
  for (const int rank : {1, 2}) EXPECT_EQ(ranks.end_of(rank, seconds(30)), 0) << ranks.said(rank);
}

TEST(LaunchCoordinator, TwoGenerationsDoNotMeet) {
  const rendezvous::Server server("127.0.0.1", 0, "");
  launch::RankInfo rank_info;
  rank_info.ranks = 2;
  rank_info.master_address = "127.0.0.1";
  rank_info.master_port = server.port();
  rank_info.store_is_running = true;
  Rendezvous first = join_rendezvous(rank_info, seconds(5));
  rank_info.generation = 1;
  Rendezvous second = join_rendezvous(rank_info, seconds(5));
  first.store->set("key", "of the first");
  EXPECT_FALSE(second.store->check({"key"}));
}

}  // namespace
}  // namespace octavo::dist

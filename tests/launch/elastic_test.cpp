// Launchers of a run of nnodes MIN:MAX among each other, without ranks.
#include <gtest/gtest.h>

#include <thread>

#include "expect_failure.h"
#include "launch/coordinator.h"
#include "launch/resizing.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Nodes = std::vector<int>;

std::unique_ptr<LaunchCoordinator> coordinator(int node, int slots, int port, bool stop = false) {
  return std::make_unique<LaunchCoordinator>(
      node, slots, "127.0.0.1", port,
      LaunchCoordinator::Options{.interrupted = [stop] { return stop; },
                                 .connect = seconds(10),
                                 .listen = milliseconds(1500),
                                 .elastic = true});
}

Elastic of(int least, int most, int spares = 0) {
  return {.least = least,
          .most = most,
          .spares = spares,
          .local_ranks = 2,
          .samples = 24,
          .passes = 24};
}

const Outcome kMissedAPeer{.code = 3, .cause = Cause::kReported, .curable = true, .rank = 0};

TEST(Elastic, NodeZeroWaitsForNodesAndThenGoesOn) {
  const auto first = coordinator(0, 3, 0);
  const auto second = coordinator(1, 3, first->port());
  auto begin = std::chrono::steady_clock::now();
  const Members two = first->gather({of(1, 3)}, milliseconds(1500), seconds(20));
  EXPECT_EQ(two.nodes, (Nodes{0, 1}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1500));
  // As many as before: nobody else is waited for.
  begin = std::chrono::steady_clock::now();
  EXPECT_EQ(first->gather({of(1, 3), {0, 2}}, seconds(30), seconds(60)).nodes, (Nodes{0, 1}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  const auto third = coordinator(2, 3, first->port());
  EXPECT_EQ(first->gather({of(1, 3)}, seconds(30), seconds(60)).nodes, (Nodes{0, 1, 2}));
}

TEST(Elastic, TooFewNodesAreNamedAfterThePatience) {
  const auto first = coordinator(0, 3, 0);
  const Members alone = first->gather({of(2, 3)}, milliseconds(100), milliseconds(700));
  EXPECT_TRUE(alone.nodes.empty());
  EXPECT_EQ(alone.idle, Nodes{0});
  const auto stopped = coordinator(0, 3, 0, true);
  expect_failure(ExitCode::kStopped, "asked to stop",
                 [&] { stopped->gather({of(2, 3)}, seconds(1), seconds(9)); });
}

// The node is killed without a word. That its ranks are missed is known at once; that its launcher
// is, after seconds, and not after the patience for nodes whose ranks only end late.
TEST(Elastic, ANodeThatIsLostIsMissedSoonAndLeftOut) {
  const auto first = coordinator(0, 3, 0);
  const auto second = coordinator(1, 3, first->port());
  auto third = coordinator(2, 3, first->port());
  const Elastic elastic = of(1, 3);
  const Nodes all = first->gather({elastic}, seconds(10), seconds(10)).nodes;
  ASSERT_EQ(all.size(), 3u);
  first->start({.generation = 0, .nodes = all}, seconds(1));
  EXPECT_EQ(second->start({}, seconds(5)).nodes, all);
  EXPECT_EQ(third->start({}, seconds(5)).nodes, all);
  third.reset();
  std::thread other([&] {
    EXPECT_TRUE(second->agree(0, kMissedAPeer, [](const Outcome&) { return Verdict{}; }).restart);
  });
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict = first->agree(0, kMissedAPeer, [](const Outcome& outcome) {
    return Verdict{.restart = outcome.curable, .outcome = outcome};
  });
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  EXPECT_EQ(verdict.outcome.kind, EndKind::kLostNode);
  EXPECT_NE(verdict.outcome.what.find("node 2 is lost"), std::string::npos);
  EXPECT_EQ(first->gather({elastic, all}, milliseconds(300), seconds(9)).nodes, (Nodes{0, 1}));
}

TEST(Elastic, ASpareWaitsTakesAPlaceAndIsDismissed) {
  const auto first = coordinator(0, 3, 0);
  const auto second = coordinator(1, 3, first->port());
  const auto spare = coordinator(2, 3, first->port());
  StartPlan taken, end;
  std::thread waiting([&] {
    taken = spare->start({}, seconds(60));
    end = spare->start({.generation = taken.generation + 1}, seconds(60));
  });
  first->start({.generation = 0, .nodes = {0, 1}}, seconds(1));
  std::this_thread::sleep_for(milliseconds(700));
  first->start({.generation = 1, .resume = true, .nodes = {0, 2}}, seconds(1));
  std::this_thread::sleep_for(milliseconds(700));
  first->gather({of(1, 2, 1)}, seconds(9), seconds(9));  // so that node 0 knows of it
  first->start({.generation = 2, .nodes = {0, 1}}, seconds(1));
  first->dismiss({.generation = 2}, 0);
  waiting.join();
  EXPECT_EQ(taken.generation, 1);
  EXPECT_TRUE(taken.resume);
  EXPECT_TRUE(end.stop);
  EXPECT_EQ(end.code, 0);
}

// A stop of a node that has no ranks is its own matter.
TEST(Elastic, ASpareThatIsStoppedEndsNothing) {
  const auto first = coordinator(0, 3, 0);
  const auto spare = coordinator(2, 3, first->port(), true);
  first->start({.generation = 0, .nodes = {0, 1}}, seconds(1));
  expect_failure(ExitCode::kStopped, "asked to stop", [&] { spare->start({}, seconds(60)); });
  spare->decline(0);
  rendezvous::Client client("127.0.0.1", first->port(), "", seconds(5));
  EXPECT_EQ(client.try_get("generation/0/alarm"), std::nullopt);
  EXPECT_EQ(client.try_get(here_key(2)), "");
}

TEST(Elastic, ANodeThatComesMakesTheRunStopOnceAndGrow) {
  const auto first = coordinator(0, 2, 0);
  Resizing resizing(of(1, 2), milliseconds(100), seconds(60));
  EXPECT_EQ(resizing.next(*first), Nodes{0});
  EXPECT_FALSE(resizing.wants_stop(*first, 0, true));
  const auto second = coordinator(1, 2, first->port());
  const auto asks = [&](bool has_made_a_step) {
    for (int tries = 0; tries < 60; ++tries) {
      if (resizing.wants_stop(*first, 0, has_made_a_step)) return true;
      std::this_thread::sleep_for(milliseconds(50));
    }
    return false;
  };
  EXPECT_FALSE(asks(false));  // every generation makes a step
  EXPECT_TRUE(asks(true));
  EXPECT_TRUE(resizing.asked());
  EXPECT_FALSE(resizing.wants_stop(*first, 0, true));
  EXPECT_EQ(resizing.next(*first), (Nodes{0, 1}));
  EXPECT_FALSE(resizing.asked());
}

// Three faults of a machine within the window, and its node is left out, as long as there are
// enough others; after the window it is taken again.
TEST(Elastic, ANodeThatFailsAgainAndAgainIsLeftOut) {
  const auto first = coordinator(0, 3, 0);
  const auto second = coordinator(1, 3, first->port());
  const auto third = coordinator(2, 3, first->port());
  Resizing resizing(of(2, 3), milliseconds(500), seconds(4));
  ASSERT_EQ(resizing.next(*first), (Nodes{0, 1, 2}));
  const Outcome fault{.code = 3, .cause = Cause::kItself, .kind = EndKind::kDeviceFault, .rank = 3};
  const Outcome missed{.code = 3, .cause = Cause::kReported, .kind = EndKind::kPeerLost, .rank = 5};
  for (int times = 0; times < 2; ++times) {
    resizing.take_note(fault);
    resizing.take_note(missed);
    EXPECT_EQ(resizing.next(*first), (Nodes{0, 1, 2}));
  }
  resizing.take_note(fault);
  resizing.take_note(missed);
  EXPECT_EQ(resizing.next(*first), (Nodes{0, 2}));
  EXPECT_FALSE(resizing.wants_stop(*first, 3, true));  // it is there, and does not count
  std::this_thread::sleep_for(seconds(4));
  for (int tries = 0; tries < 60 && !resizing.asked(); ++tries) {
    resizing.wants_stop(*first, 3, true);
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE(resizing.asked());
  EXPECT_EQ(resizing.next(*first), (Nodes{0, 1, 2}));
}

// What has no node at fault, or is as likely on every other.
TEST(Elastic, OnlyWhatIsTheNodesOwnIsCounted) {
  Outcome fault{.code = 3, .cause = Cause::kItself, .kind = EndKind::kHang, .rank = 2};
  EXPECT_TRUE(is_fault_of_node(fault));
  for (const EndKind kind : {EndKind::kDeviceMemory, EndKind::kNetwork, EndKind::kLostNode}) {
    fault.kind = kind;
    EXPECT_FALSE(is_fault_of_node(fault)) << row_of(kind).name;
  }
}

// With too few others it stays; node 0 always does.
TEST(Elastic, ANodeThatIsNeededIsNotLeftOut) {
  const auto first = coordinator(0, 2, 0);
  const auto second = coordinator(1, 2, first->port());
  Resizing resizing(of(2, 2), milliseconds(100), seconds(60));
  ASSERT_EQ(resizing.next(*first), (Nodes{0, 1}));
  Outcome fault{.code = 3, .cause = Cause::kItself, .kind = EndKind::kHang, .rank = 2};
  for (int times = 0; times < 3; ++times) resizing.take_note(fault);
  EXPECT_EQ(resizing.next(*first), (Nodes{0, 1}));
  fault.rank = 0;
  for (int times = 0; times < 3; ++times) resizing.take_note(fault);
  EXPECT_EQ(resizing.next(*first), (Nodes{0, 1}));
}

// Node 0 is lost in the midst of a stop that it asked for: the run is to go on when it is back. A
// node that was itself asked to stop ends.
TEST(Elastic, AStopBeforeGrowthOutlivesNodeZero) {
  const Outcome stopped{.code = 75, .kind = EndKind::kStopped, .stopped = true};
  const auto none = [](const Outcome&) { return Verdict{}; };
  auto first = coordinator(0, 3, 0);
  const auto second = coordinator(1, 3, first->port());
  const auto asked = coordinator(2, 3, first->port(), true);
  first.reset();
  const Verdict verdict = second->agree(0, stopped, none);
  EXPECT_TRUE(verdict.rejoin);
  EXPECT_EQ(verdict.outcome.kind, EndKind::kLostFirstNode);
  const Verdict own = asked->agree(0, stopped, none);
  EXPECT_FALSE(own.rejoin);
  EXPECT_EQ(own.outcome.code, 75);
}

// Node 0 is back before the others have missed it: its store counts generations anew, and nobody
// is to wait in it for what the old one was to say.
TEST(Elastic, ANewStoreIsNotTakenForTheOldOne) {
  auto first = coordinator(0, 3, 0);
  const int port = first->port();
  const auto second = coordinator(1, 3, port);
  const auto spare = coordinator(2, 3, port);
  first->start({.generation = 7, .nodes = {0, 1}}, seconds(1));
  EXPECT_EQ(second->start({}, seconds(5)).generation, 7);
  bool is_lost = false;
  std::thread waiting([&] {
    try {
      spare->start({}, seconds(60));
    } catch (const rendezvous::Unreachable&) {
      is_lost = true;
    }
  });
  std::this_thread::sleep_for(milliseconds(500));
  first.reset();
  first = coordinator(0, 3, port);
  first->start({.generation = 0, .nodes = {0}}, seconds(1));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(second->agree(7, kMissedAPeer, [](const Outcome&) { return Verdict{}; }).rejoin);
  waiting.join();
  EXPECT_TRUE(is_lost);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
}

// A machine without power closes no connection: its silence ends the ranks that wait for it.
TEST(Elastic, ASilentNodeEndsTheGeneration) {
  const auto first = coordinator(0, 2, 0);
  auto second = coordinator(1, 2, first->port());
  const Nodes both = first->gather({of(1, 2)}, seconds(10), seconds(10)).nodes;
  first->start({.generation = 3, .nodes = both}, seconds(1));
  second->start({}, seconds(5));
  second.reset();
  rendezvous::Client client("127.0.0.1", first->port(), "", seconds(5));
  for (int tries = 0; tries < 300 && !client.check({"generation/3/alarm"}); ++tries) {
    first->look_at_nodes(3);
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_EQ(client.try_get("generation/3/alarm"),
            "node 1: no sign of life of its launcher for 10 s");
}

}  // namespace
}  // namespace octavo::launch

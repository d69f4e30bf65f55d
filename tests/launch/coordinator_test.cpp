#include "launch/coordinator.h"

#include <gtest/gtest.h>

#include <thread>

#include "expect_failure.h"
#include "launch/failed_start.h"
#include "own_variables.h"

namespace octavo::launch {
namespace {

Outcome failed(int code, Cause cause, int rank) {
  return {.code = code, .cause = cause, .curable = code == 3, .rank = rank, .what = "for a test"};
}

using std::chrono::milliseconds;
using std::chrono::seconds;
using Options = LaunchCoordinator::Options;

// Asked to stop from the start, or never.
Options with(bool interrupted, milliseconds connect = seconds(10)) {
  return {.interrupted = [interrupted] { return interrupted; },
          .connect = connect,
          .listen = milliseconds(1500)};
}

bool ended_within(std::chrono::steady_clock::time_point begin, milliseconds limit) {
  return std::chrono::steady_clock::now() - begin < limit;
}

TEST(LaunchCoordinator, NodesReturnTheSame) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), with(false));
  Verdict seen;
  // The first node only knows that a peer is gone; the second knows which and why.
  std::thread other([&] {
    seen = second.agree(0, failed(3, Cause::kItself, 2), [](const Outcome&) { return Verdict{}; });
  });
  const Verdict verdict =
      first.agree(0, failed(3, Cause::kReported, 0), [](const Outcome& outcome) {
        return Verdict{.restart = true, .wait = milliseconds(70), .outcome = outcome};
      });
  other.join();
  EXPECT_EQ(verdict.outcome.rank, 2);
  EXPECT_TRUE(verdict.outcome.curable);
  EXPECT_TRUE(seen.restart);
  EXPECT_EQ(seen.wait, milliseconds(70));
  EXPECT_EQ(seen.outcome.rank, 2);
  EXPECT_EQ(seen.outcome.what, "node 1: for a test");
}

TEST(LaunchCoordinator, WhatOneNodeCannotCureIsNotRestarted) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), with(false));
  std::thread other([&] {
    second.agree(0, failed(2, Cause::kReported, 1), [](const Outcome&) { return Verdict{}; });
  });
  first.agree(0, failed(3, Cause::kItself, 0), [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.curable);
    return Verdict{.outcome = outcome};
  });
  other.join();
}

// Node 0 waits for a while to hear how the others' ranks ended, and decides.
TEST(LaunchCoordinator, ANodeThatCannotBeCuredStaysOutOfARestart) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), with(false));
  Outcome own = failed(3, Cause::kSilent, 1);
  own.kind = EndKind::kUnkillable;
  own.curable = false;
  Verdict seen{.restart = true};
  std::thread other([&] { seen = second.agree(0, own, [](const Outcome&) { return Verdict{}; }); });
  first.agree(0, failed(3, Cause::kReported, 0),
              [](const Outcome& outcome) { return Verdict{.restart = true, .outcome = outcome}; });
  other.join();
  EXPECT_FALSE(seen.restart);
  EXPECT_FALSE(seen.rejoin);
  EXPECT_EQ(seen.outcome.kind, EndKind::kUnkillable);
  first.agree(1, failed(3, Cause::kReported, 0), [](const Outcome& outcome) {
    EXPECT_EQ(outcome.kind, EndKind::kUnkillable);
    EXPECT_FALSE(outcome.curable);
    return Verdict{.outcome = outcome};
  });
}

TEST(LaunchCoordinator, DeathsAreToldAndForgottenByARestart) {
  LaunchCoordinator coordinator(0, 1, "127.0.0.1", 0, with(false));
  rendezvous::Client client("127.0.0.1", coordinator.port(), "", std::chrono::seconds(5));
  coordinator.post_death(3, "killed by signal 9 (Killed)");
  EXPECT_EQ(client.try_get("launch/dead/3"), "killed by signal 9 (Killed)");
  coordinator.post_death(1, "exit code 3");  // the first alarm is the one that counts
  EXPECT_EQ(client.try_get("generation/0/alarm"), "rank 3: killed by signal 9 (Killed)");
  coordinator.agree(0, failed(3, Cause::kItself, 3), [](const Outcome& outcome) {
    return Verdict{.restart = true, .outcome = outcome};
  });
  EXPECT_EQ(client.try_get("launch/dead/3"), std::nullopt);
}

TEST(LaunchCoordinator, AStopEndsTheWaitForNodeZero) {
  int port = 0;
  {
    LaunchCoordinator gone(0, 1, "127.0.0.1", 0, with(false));
    port = gone.port();
  }
  const auto begin = std::chrono::steady_clock::now();
  expect_failure(ExitCode::kStopped, "asked to stop",
                 [&] { LaunchCoordinator(1, 2, "127.0.0.1", port, with(true)); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(LaunchCoordinator, NodesThatHaveNotComeAreNamed) {
  LaunchCoordinator first(0, 12, "127.0.0.1", 0, with(false));
  first.start({}, seconds(1));
  const auto said = [&](bool waits) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(first.say_missing_nodes(0), waits);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(true).find("waiting for nodes 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12:"),
            std::string::npos);
  EXPECT_EQ(said(true), "");  // nothing new
  rendezvous::Client client("127.0.0.1", first.port(), "", seconds(5));
  for (int node = 1; node < 11; ++node) client.set(str("launch/0/node/", node), "here");
  LaunchCoordinator last(11, 12, "127.0.0.1", first.port(), with(false));
  EXPECT_NE(said(true).find("waiting for node 11 of 12:"), std::string::npos);
  last.start({}, seconds(20));
  EXPECT_EQ(said(false), "");
  first.start({.generation = 1}, seconds(1));
  EXPECT_EQ(first.say_missing_nodes(1), true);
}

// The address of another machine on node 0, or a name that nobody knows, is a mistake: it is no
// node that is late, nor a port that will be free soon. (No resolver is asked for this name: one
// that has no network would say that it does not know yet.)
TEST(LaunchCoordinator, AWrongAddressIsNotWaitedFor) {
  Options patient = with(false, seconds(600));
  patient.listen = seconds(600);
  patient.resolve = milliseconds(300);
  const OwnVariables variables{"OCTAVO_RENDEZVOUS_SECRET", "OCTAVO_RENDEZVOUS_SECRET_FILE"};
  ::setenv("OCTAVO_RENDEZVOUS_SECRET", "a secret of more than sixteen bytes", 1);
  const auto begin = std::chrono::steady_clock::now();
  expect_failure(ExitCode::kEnvironment, "'fe80::1%nosuch' is no address here",
                 [&] { LaunchCoordinator(1, 2, "fe80::1%nosuch", 29500, patient); });
  expect_failure(ExitCode::kEnvironment, "cannot listen at 'fe80::1%nosuch'",
                 [&] { LaunchCoordinator(0, 2, "fe80::1%nosuch", 0, patient); });
  expect_failure(ExitCode::kEnvironment, "cannot listen at '192.0.2.1'",
                 [&] { LaunchCoordinator(0, 2, "192.0.2.1", 0, patient); });
  EXPECT_TRUE(ended_within(begin, seconds(20)));
}

TEST(LaunchCoordinator, ANodeThatIsLostIsNamed) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(true));  // impatient
  const Verdict verdict =
      first.agree(0, {}, [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  EXPECT_EQ(verdict.outcome.code, 3);
  EXPECT_EQ(verdict.outcome.kind, EndKind::kLostNode);
  EXPECT_TRUE(verdict.outcome.curable);
  EXPECT_NE(verdict.outcome.what.find("node 1 is lost"), std::string::npos);
}

// Rank 0 may finish its reports while the other node has long ended: both return 75, and a node
// that ends after node 0 has left does, too.
TEST(LaunchCoordinator, AStopIsOneOfAllNodes) {
  Verdict late;
  {
    auto first = std::make_unique<LaunchCoordinator>(0, 2, "127.0.0.1", 0, with(true));
    LaunchCoordinator second(1, 2, "127.0.0.1", first->port(), with(false));
    first->start({}, seconds(1));
    second.start({}, seconds(1));
    const Outcome stopped{.code = 75, .kind = EndKind::kStopped, .stopped = true};
    std::thread slow([&] {  // three seconds after node 0's ranks, and node 0 was asked to stop
      std::this_thread::sleep_for(seconds(3));
      late = second.agree(0, stopped, [](const Outcome&) { return Verdict{}; });
    });
    const Verdict verdict = first->agree(
        0, stopped, [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
    EXPECT_EQ(verdict.outcome.code, 75);
    slow.join();
    EXPECT_EQ(late.outcome.code, 75);
    first.reset();
    const Verdict alone = second.agree(0, stopped, [](const Outcome&) { return Verdict{}; });
    EXPECT_EQ(alone.outcome.code, 75);
    EXPECT_FALSE(alone.rejoin);
  }
}

// The first rank uploads the last checkpoint for as long as it takes; ranks that failed are missed.
TEST(LaunchCoordinator, ANodeThatIsDoneWaitsForNodeZero) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  Options options = with(false);
  options.decision = milliseconds(200);
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), options);
  const auto none = [](const Outcome&) { return Verdict{}; };
  Verdict seen{.outcome = {.code = 3}};
  std::thread other([&] { seen = second.agree(0, {}, none); });
  std::this_thread::sleep_for(milliseconds(1500));  // more than one question
  first.agree(0, {}, [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  other.join();
  EXPECT_EQ(seen.outcome.code, 0) << seen.outcome.what;
  EXPECT_EQ(second.agree(1, failed(3, Cause::kReported, 2), none).outcome.kind,
            EndKind::kLostFirstNode);
  LaunchCoordinator asked(1, 2, "127.0.0.1", first.port(), with(true));
  expect_failure(ExitCode::kStopped, "may still upload", [&] { asked.agree(2, {}, none); });
}

TEST(LaunchCoordinator, NodesStartWhatNodeZeroSays) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), with(false));
  first.start({.generation = 0, .run_name = "of-node-0"}, seconds(1));
  const StartPlan plan = second.start({.run_name = "of-node-1"}, seconds(5));
  EXPECT_EQ(plan.run_name, "of-node-0");
  EXPECT_FALSE(plan.resume);
  first.start({.generation = 1, .resume = true}, seconds(1));
  EXPECT_TRUE(second.start({.generation = 1}, seconds(5)).resume);
  first.start({.generation = 2, .stop = true}, seconds(1));
  EXPECT_TRUE(second.start({.generation = 2}, seconds(5)).stop);
}

// Node 0 may go on without this node, which would wait beside the run for ever.
TEST(LaunchCoordinator, ALauncherThatWasToldOtherwiseIsRefused) {
  Options told = with(false);
  told.elastic = true;
  told.terms = {.least = 1, .most = 2, .local_ranks = 4, .max_restarts = 3};
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, told);
  EXPECT_NO_THROW(LaunchCoordinator(1, 2, "127.0.0.1", first.port(), told));
  Options otherwise = with(false);
  otherwise.terms = {.least = 2, .most = 2, .local_ranks = 4, .max_restarts = 3};
  expect_failure(ExitCode::kUsage, "found on node 1 nnodes 2 (node 0 has 1:2); start",
                 [&] { LaunchCoordinator(1, 2, "127.0.0.1", first.port(), otherwise); });
  otherwise.terms = {.least = 1, .most = 2, .spares = 1, .local_ranks = 2, .max_restarts = 5};
  expect_failure(ExitCode::kUsage,
                 "spares 1 (node 0 has 0), nproc 2 (node 0 has 4), max_restarts 5 (node 0 has 3)",
                 [&] { LaunchCoordinator(2, 3, "127.0.0.1", first.port(), otherwise); });
}

RunTerms two_nodes(int max_restarts = 0) {
  return {.least = 2, .most = 2, .max_restarts = max_restarts};
}

// Node 0's ranks are told, and so is its launcher: neither waits for a node that does not come.
TEST(LaunchCoordinator, ALauncherThatCannotStartEndsTheRun) {
  Options options = with(false);
  options.terms = two_nodes(3);
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, options);
  first.start({.generation = 2}, seconds(1));
  options.terms = two_nodes(4);
  expect_failure(ExitCode::kUsage, "max_restarts 4 (node 0 has 3)",
                 [&] { LaunchCoordinator(1, 2, "127.0.0.1", first.port(), options); });
  rendezvous::Client client("127.0.0.1", first.port(), "", seconds(5));
  EXPECT_TRUE(client.check({"generation/2/alarm"}));
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict =
      first.agree(2, failed(3, Cause::kReported, 0),
                  [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  EXPECT_TRUE(ended_within(begin, seconds(3)));
  EXPECT_EQ(verdict.outcome.code, 2);
  EXPECT_FALSE(verdict.outcome.curable);
  EXPECT_TRUE(verdict.outcome.what.starts_with("node 1 ended with exit code 2: [launch] wanted"))
      << verdict.outcome.what;
}

// A second launcher of a node that has ranks, one of a node that is not in the run, and one of a
// run that can do without it are nobody's business but their user's.
TEST(LaunchCoordinator, AFailedStartOfNobodyEndsNothing) {
  const Error wrong(ExitCode::kUsage, "config", "for a test");
  Options options = with(false);
  options.terms = two_nodes();
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, options);
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), options);
  first.start({}, seconds(1));
  second.start({}, seconds(5));
  rendezvous::Client client("127.0.0.1", first.port(), "", seconds(5));
  tell_failed_start(client, 1, wrong);
  tell_failed_start(client, 2, wrong);
  EXPECT_FALSE(client.check({"generation/0/alarm"}));
  options.elastic = true;
  options.terms.least = 1;
  LaunchCoordinator elastic(0, 2, "127.0.0.1", 0, options);
  elastic.start({.nodes = {0}}, seconds(1));
  rendezvous::Client other("127.0.0.1", elastic.port(), "", seconds(5));
  tell_failed_start(other, 1, wrong);
  EXPECT_FALSE(other.check({"generation/0/alarm"}));
}

TEST(LaunchCoordinator, TermsAreTheNodesThatTheVariablesAndFlagsGive) {
  config::Settings settings;
  EXPECT_EQ(terms_of(settings, {.local_ranks = 8, .nodes = 4}).most, 4);  // the guides' WORLD_SIZE
  settings.nnodes = 4;
  settings.spares = 1;
  const RunTerms all = terms_of(settings, {.local_ranks = 8, .nodes = 5});
  EXPECT_EQ(all.most, 4);
  EXPECT_EQ(all.least, 4);
  settings.least_nodes = 4;  // --nnodes 4:4 is --nnodes 4
  EXPECT_EQ(differences(terms_of(settings, {.local_ranks = 8, .nodes = 5}), all), "");
}

// A launcher that a scheduler started again has no part in the generation that its node was lost
// from: it ends that one and waits for the next.
TEST(LaunchCoordinator, ALauncherThatComesBackJoinsTheNextGeneration) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  first.start({.generation = 4}, seconds(1));
  {
    LaunchCoordinator lost(1, 2, "127.0.0.1", first.port(), with(false));
    EXPECT_EQ(lost.start({}, seconds(5)).generation, 4);
  }
  LaunchCoordinator again(1, 2, "127.0.0.1", first.port(), with(false));
  StartPlan plan;
  std::thread joining([&] { plan = again.start({}, seconds(20)); });
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict =
      first.agree(4, failed(3, Cause::kReported, 0), [](const Outcome& outcome) {
        return Verdict{.restart = outcome.curable, .outcome = outcome};
      });
  EXPECT_TRUE(ended_within(begin, seconds(8)));
  EXPECT_TRUE(verdict.restart);
  EXPECT_NE(verdict.outcome.what.find("launcher of node 1 was started again"), std::string::npos);
  rendezvous::Client client("127.0.0.1", first.port(), "", seconds(5));
  EXPECT_TRUE(client.check({"generation/4/alarm"}));
  first.start({.generation = 5, .resume = true}, seconds(1));
  joining.join();
  EXPECT_EQ(plan.generation, 5);
  EXPECT_TRUE(plan.resume);
}

TEST(LaunchCoordinator, WithoutNodeZeroTheOthersWaitForIt) {
  auto first = std::make_unique<LaunchCoordinator>(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first->port(), with(false));
  first.reset();
  const Verdict verdict =
      second.agree(0, failed(3, Cause::kReported, 2), [](const Outcome&) { return Verdict{}; });
  EXPECT_TRUE(verdict.rejoin);
  EXPECT_FALSE(verdict.restart);
  EXPECT_EQ(verdict.outcome.kind, EndKind::kLostFirstNode);
  // What a restart does not cure, it does not wait for.
  EXPECT_FALSE(
      second.agree(0, failed(4, Cause::kItself, 2), [](const Outcome&) { return Verdict{}; })
          .rejoin);
}

// The port of a node 0 that was lost may still be taken for a moment.
TEST(LaunchCoordinator, NodeZeroWaitsForItsPort) {
  auto old = std::make_unique<LaunchCoordinator>(0, 2, "127.0.0.1", 0, with(false));
  const int port = old->port();
  std::thread leaving([&] {
    std::this_thread::sleep_for(milliseconds(500));
    old.reset();
  });
  EXPECT_NO_THROW(LaunchCoordinator(0, 2, "127.0.0.1", port, with(false)));
  leaving.join();
  const LaunchCoordinator taken(0, 2, "127.0.0.1", port, with(false));
  expect_failure(ExitCode::kEnvironment, "cannot listen",
                 [&] { LaunchCoordinator(0, 2, "127.0.0.1", port, with(false)); });
}

TEST(LaunchCoordinator, ANodeThatIsAskedToStopIsNotWaitedFor) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(false));
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), with(false));
  second.decline(1);
  first.start({.generation = 1}, seconds(1));
  const Verdict verdict =
      first.agree(1, failed(3, Cause::kReported, 0),
                  [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  EXPECT_EQ(verdict.outcome.code, 75);
}

// A node that never came makes no failure of a stop that the ranks here obeyed.
TEST(LaunchCoordinator, AStopDoesNotWaitForNodesThatNeverCame) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, with(true));
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict = first.agree(0, {.code = 75, .stopped = true}, [](const Outcome& outcome) {
    return Verdict{.outcome = outcome};
  });
  EXPECT_EQ(verdict.outcome.code, 75);
  EXPECT_EQ(verdict.outcome.cause, Cause::kNone);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace octavo::launch

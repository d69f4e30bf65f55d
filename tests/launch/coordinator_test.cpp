#include "launch/coordinator.h"

#include <gtest/gtest.h>

#include <thread>

#include "expect_failure.h"

namespace octavo::launch {
namespace {

Outcome failed(int code, Cause cause, int rank) {
  return {.code = code, .cause = cause, .curable = code == 3, .rank = rank, .what = "for a test"};
}

bool never() {
  return false;
}

TEST(LaunchCoordinator, NodesReturnTheSame) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, never);
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), never);
  Verdict seen;
  // The first node only knows that a peer is gone; the second knows which and why.
  std::thread other([&] {
    seen = second.agree(0, failed(3, Cause::kItself, 2), [](const Outcome&) { return Verdict{}; });
  });
  const Verdict verdict =
      first.agree(0, failed(3, Cause::kReported, 0), [](const Outcome& outcome) {
        return Verdict{.restart = true, .resume = true, .outcome = outcome};
      });
  other.join();
  EXPECT_EQ(verdict.outcome.rank, 2);
  EXPECT_TRUE(verdict.outcome.curable);
  EXPECT_TRUE(seen.restart);
  EXPECT_TRUE(seen.resume);
  EXPECT_EQ(seen.outcome.rank, 2);
  EXPECT_EQ(seen.outcome.what, "for a test");
}

TEST(LaunchCoordinator, WhatOneNodeCannotCureIsNotRestarted) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, never);
  LaunchCoordinator second(1, 2, "127.0.0.1", first.port(), never);
  std::thread other([&] {
    second.agree(0, failed(2, Cause::kReported, 1), [](const Outcome&) { return Verdict{}; });
  });
  first.agree(0, failed(3, Cause::kItself, 0), [](const Outcome& outcome) {
    EXPECT_FALSE(outcome.curable);
    return Verdict{.outcome = outcome};
  });
  other.join();
}

TEST(LaunchCoordinator, DeathsAreToldAndForgottenByARestart) {
  LaunchCoordinator coordinator(0, 1, "127.0.0.1", 0, never);
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
    LaunchCoordinator gone(0, 1, "127.0.0.1", 0, never);
    port = gone.port();
  }
  const auto begin = std::chrono::steady_clock::now();
  expect_failure(ExitCode::kStopped, "asked to stop",
                 [&] { LaunchCoordinator(1, 2, "127.0.0.1", port, [] { return true; }); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(LaunchCoordinator, ANodeThatIsLostIsNamed) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, [] { return true; });  // impatient
  const Verdict verdict =
      first.agree(0, {}, [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  EXPECT_EQ(verdict.outcome.code, 3);
  EXPECT_NE(verdict.outcome.what.find("node 1 is lost"), std::string::npos);
}

// A node that never came makes no failure of a stop that the ranks here obeyed.
TEST(LaunchCoordinator, AStopDoesNotWaitForNodesThatNeverCame) {
  LaunchCoordinator first(0, 2, "127.0.0.1", 0, [] { return true; });
  const auto begin = std::chrono::steady_clock::now();
  const Verdict verdict = first.agree(
      0, {.code = 75}, [](const Outcome& outcome) { return Verdict{.outcome = outcome}; });
  EXPECT_EQ(verdict.outcome.code, 75);
  EXPECT_EQ(verdict.outcome.cause, Cause::kNone);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace octavo::launch

#include "train/guards/hang_judge.h"

#include <gtest/gtest.h>

namespace octavo::train {
namespace {

using heartbeat::Wait;

constexpr HangJudge::Options kAlone{.timeout = 60, .alone = true, .on_cpu = true};
constexpr HangJudge::Options kOneOfMany{.timeout = 60, .alone = false, .on_cpu = true};
constexpr HangJudge::Options kOnGpu{.timeout = 60, .alone = false, .on_cpu = false};

// Looks every second from `from` to `to`; when the verdict first came, or -1.
double first(HangJudge& judge, Verdict wanted, double from, double to, Signs signs,
             double cpu_share = 0) {
  for (double now = from; now <= to; ++now) {
    signs.cpu_seconds = cpu_share * now;
    if (judge.look(now, signs) == wanted) return now;
  }
  return -1;
}

TEST(HangJudge, NamesAThreadThatStandsStillWithinTheTimeout) {
  for (const Wait wait : {Wait::kNothing, Wait::kLoader, Wait::kDevice}) {
    HangJudge judge(kAlone);
    const double found = first(judge, Verdict::kHangs, 100, 300, {.main = 7, .wait = wait});
    EXPECT_GE(found, 140);
    EXPECT_LE(found, 150);
  }
}

TEST(HangJudge, ProgressOfAnyKindBeginsAnew) {
  Signs signs{.main = 1, .wait = Wait::kLoader};
  HangJudge judge(kAlone);
  uint64_t Signs::*const counts[] = {&Signs::main, &Signs::loader, &Signs::device};
  double now = 0;
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(first(judge, Verdict::kHangs, now, now + 40, signs), -1) << now;
    now += 41;
    signs.*counts[i % 3] += 1;
  }
  EXPECT_GT(first(judge, Verdict::kHangs, now, now + 60, signs), 0);
}

// A loader reads ahead whatever the main thread does.
TEST(HangJudge, TheLoaderIsNoExcuseForWhoDoesNotWaitForIt) {
  HangJudge judge(kAlone);
  Signs signs{.wait = Wait::kNothing};
  Verdict verdict = Verdict::kFine;
  for (double now = 0; now < 50 && verdict != Verdict::kHangs; ++now, ++signs.loader)
    verdict = judge.look(now, signs);
  EXPECT_EQ(verdict, Verdict::kHangs);
}

TEST(HangJudge, WhoWaitsForRanksSpeaksAfterTheOneThatHangs) {
  HangJudge waits(kOneOfMany), hangs(kOneOfMany);
  const double last = first(waits, Verdict::kWaits, 0, 100, {.wait = Wait::kRanks});
  const double culprit = first(hangs, Verdict::kHangs, 0, 100, {.wait = Wait::kNothing});
  EXPECT_GT(last, culprit);
  EXPECT_LT(last, 60);
  EXPECT_EQ(waits.look(last + 1, {.wait = Wait::kRanks}), Verdict::kWaits) << "and again";
}

// A GPU that works may wait for the GPUs of other ranks; one that is idle does not.
TEST(HangJudge, AGpuThatWorksMayWaitForOthers) {
  HangJudge works(kOnGpu), idle(kOnGpu);
  Signs signs{.wait = Wait::kDevice, .device_works = true};
  EXPECT_EQ(first(works, Verdict::kHangs, 0, 200, signs), -1);
  EXPECT_EQ(works.look(201, signs), Verdict::kWaits);
  signs.device_works = false;
  EXPECT_GT(first(idle, Verdict::kHangs, 0, 60, signs), 0);
}

TEST(HangJudge, WhatMayTakeLongIsSaidOnceAndNotEnded) {
  HangJudge judge(kAlone);
  Signs signs{.exempt = true};
  const double said = first(judge, Verdict::kSlow, 0, 100, signs);
  EXPECT_GE(said, 60);
  for (double now = said + 1; now < 1000; ++now) ASSERT_EQ(judge.look(now, signs), Verdict::kFine);
  signs.exempt = false;  // from here on it is expected again
  EXPECT_EQ(judge.look(1001, signs), Verdict::kFine);
  EXPECT_NEAR(first(judge, Verdict::kHangs, 1002, 1100, signs), 1046, 2);
}

TEST(HangJudge, AThreadThatComputesIsSlowOnACpuOnly) {
  HangJudge cpu(kAlone), gpu(kOnGpu), waits(kAlone);
  EXPECT_EQ(first(cpu, Verdict::kHangs, 0, 500, {}, 0.4), -1);
  EXPECT_GT(first(gpu, Verdict::kHangs, 0, 60, {}, 1.0), 0) << "it may spin";
  EXPECT_GT(first(waits, Verdict::kHangs, 0, 60, {.wait = Wait::kLoader}, 1.0), 0);
}

// SIGSTOP and SIGCONT, or a machine that slept.
TEST(HangJudge, TimeThatCouldNotBeWatchedDoesNotCount) {
  HangJudge judge(kAlone);
  EXPECT_EQ(judge.look(0, {}), Verdict::kFine);
  EXPECT_EQ(judge.look(1, {}), Verdict::kFine);
  EXPECT_EQ(judge.look(5000, {}), Verdict::kFine);
  EXPECT_LT(judge.quiet(), 5);
  EXPECT_EQ(judge.look(4000, {}), Verdict::kFine) << "a clock that goes back";
}

}  // namespace
}  // namespace octavo::train

#include "launch/rank_ends.h"

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <set>

#include "launch/outcome.h"

namespace octavo::launch {
namespace {

TEST(RankEnds, EveryKindHasOneRow) {
  std::set<std::string_view> names;
  int at = 0;
  for (const EndRow& row : end_table()) {
    EXPECT_EQ(static_cast<int>(row.kind), at++);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.tried.empty()) << row.name;
    EXPECT_FALSE(name_of(row.at_fault).empty());
  }
  EXPECT_EQ(at, kEndKinds);
  EXPECT_GE(at, 25);
}

// What a person expects, beside the table: which exit codes and signals are started again.
TEST(RankEnds, CodesAndSignals) {
  const std::map<int, bool> codes = {{0, false},  {1, false},   {2, false},   {3, true},
                                     {4, false},  {5, false},   {6, false},   {42, false},
                                     {75, false}, {126, false}, {127, false}, {130, false}};
  for (const auto& [code, cured] : codes)
    EXPECT_EQ(row_of(kind_of({.code = code})).curable, cured) << code;
  const std::map<int, bool> signals = {
      {SIGKILL, true}, {SIGTERM, true}, {SIGINT, true},   {SIGHUP, true},  {SIGUSR1, true},
      {SIGSEGV, true}, {SIGBUS, true},  {SIGABRT, true},  {SIGPIPE, true}, {SIGQUIT, true},
      {SIGFPE, false}, {SIGILL, false}, {SIGXCPU, false}, {SIGSYS, false}, {SIGXFSZ, false}};
  for (const auto& [signal, cured] : signals) {
    EXPECT_EQ(row_of(kind_of({.signal = signal})).curable, cured) << signal;
    const RankEnd end{.signal = signal};
    EXPECT_EQ(outcome_of(std::span(&end, 1), 0).code, 3) << signal;
  }
}

TEST(RankEnds, WhatARankSaidCountsOnlyWithExitCodeThree) {
  std::set<EndKind> kinds;
  for (uint32_t failure = 0; failure < kFailures; ++failure) {
    const auto said = static_cast<Failure>(failure);
    kinds.insert(kind_of({.code = 3, .failure = said}));
    EXPECT_EQ(kind_of({.code = 4, .failure = said}), EndKind::kGuard);
    EXPECT_EQ(kind_of({.signal = SIGKILL, .failure = said}), EndKind::kKilled);
  }
  EXPECT_EQ(kinds.size(), kFailures);
  EXPECT_FALSE(row_of(kind_of({.code = 3, .failure = Failure::kStorageRefused})).curable);
  for (const Failure failure : {Failure::kStorage, Failure::kStorageFull, Failure::kNetwork})
    EXPECT_GT(row_of(kind_of({.code = 3, .failure = failure})).first_wait.count(), 0);
}

TEST(RankEnds, WhatTheLauncherSaw) {
  EXPECT_EQ(kind_of({.signal = SIGKILL, .killed = true}), EndKind::kEndedByUs);
  EXPECT_EQ(kind_of({.signal = SIGKILL, .killed = true, .was_stopped = true}),
            EndKind::kStoodStill);
  EXPECT_EQ(kind_of({.killed = true, .unkillable = true}), EndKind::kUnkillable);
  EXPECT_TRUE(row_of(EndKind::kLostNode).curable);
  EXPECT_TRUE(row_of(EndKind::kLostFirstNode).curable);
  EXPECT_FALSE(row_of(EndKind::kUnkillable).curable);
}

}  // namespace
}  // namespace octavo::launch

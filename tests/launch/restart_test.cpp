#include "launch/restart.h"

#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "expect_failure.h"
#include "launch/run.h"
#include "scratch.h"

namespace octavo::launch {
namespace {

using Texts = std::vector<std::string>;

RankEnd exited(int rank, int order, int code) {
  return {.rank = rank, .order = order, .code = code};
}

RankEnd signalled(int rank, int order, int signal) {
  return {.rank = rank, .order = order, .signal = signal};
}

Outcome of(const std::vector<RankEnd>& ends, int stop = 0) {
  return outcome_of(ends, stop);
}

// For the run's files: one line, whatever a rank printed last.
TEST(Outcome, TheCauseOfARestartIsItsKindAndWhatHappened) {
  RankEnd end = signalled(1, 0, SIGKILL);
  end.last_line = "a \033[31mred\nline" + std::string(2000, 'x');
  const std::string cause = restart_cause(of({exited(0, 1, 3), end}));
  EXPECT_TRUE(cause.starts_with("killed: rank 1 was killed by signal 9 (Killed); its last line: a"))
      << cause;
  EXPECT_LT(cause.size(), 700U);
  EXPECT_EQ(cause.find('\n'), std::string::npos);
  EXPECT_EQ(cause.find('\033'), std::string::npos);
}

TEST(Outcome, GoodEnds) {
  EXPECT_EQ(of({exited(0, 0, 0), exited(1, 1, 0)}).code, 0);
  EXPECT_EQ(of({exited(0, 0, 75), exited(1, 1, 75)}).code, 75);
  EXPECT_EQ(of({exited(0, 0, 0), exited(1, 1, 75)}).code, 75);
  EXPECT_EQ(of({exited(0, 0, 0), exited(1, 1, 75)}).cause, Cause::kNone);
}

TEST(Outcome, TheFirstThatFailedByItselfIsTheCause) {
  // Peers leave with 3 because a rank is gone, and may be seen before it.
  const Outcome killed = of({exited(0, 0, 3), exited(1, 1, 3), signalled(2, 2, SIGKILL)});
  EXPECT_EQ(killed.code, 3);
  EXPECT_EQ(killed.rank, 2);
  EXPECT_TRUE(killed.curable);
  EXPECT_NE(killed.what.find("rank 2 was killed by signal 9"), std::string::npos) << killed.what;

  const Outcome guard = of({exited(0, 0, 3), exited(1, 1, 4)});
  EXPECT_EQ(guard.code, 4);
  EXPECT_EQ(guard.rank, 1);
  EXPECT_FALSE(guard.curable);

  EXPECT_EQ(of({exited(0, 2, 3), exited(1, 0, 3), exited(2, 1, 3)}).rank, 1);
  EXPECT_EQ(of({exited(0, 0, 1)}).code, 1);
}

TEST(Outcome, ARankThatStoodStillIsTheCause) {
  RankEnd still = signalled(1, 2, SIGKILL);
  still.killed = still.was_stopped = true;
  RankEnd slow = signalled(3, 3, SIGKILL);
  slow.killed = true;
  const Outcome outcome = of({exited(0, 0, 3), still, exited(2, 1, 3), slow});
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.what.find("stood still"), std::string::npos);
}

TEST(Outcome, AStopBeforeRanksListen) {
  const Outcome outcome = of({signalled(0, 0, SIGTERM), exited(1, 1, 3)}, SIGTERM);
  EXPECT_EQ(outcome.code, 75);
  EXPECT_EQ(of({signalled(0, 0, SIGTERM)}).code, 3);  // somebody else's
}

// Before, asking twice ended the ranks and returned 0.
TEST(Outcome, EndedAtOnceIsNotDone) {
  RankEnd ended = signalled(0, 0, SIGKILL);
  ended.killed = true;
  EXPECT_EQ(of({ended}, SIGINT).code, 130);
  EXPECT_EQ(of({ended}, SIGINT).cause, Cause::kNone);
}

TEST(Outcome, WhatARankSaysAboutItselfNamesIt) {
  RankEnd peer = exited(0, 0, 3), faulty = exited(1, 1, 3);
  peer.failure = Failure::kPeerLost;
  faulty.failure = Failure::kDeviceFault;
  const Outcome outcome = of({peer, faulty});
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.kind, EndKind::kDeviceFault);
  EXPECT_TRUE(outcome.curable);
  EXPECT_EQ(outcome.what, "rank 1 ended with exit code 3 (device_fault)");
}

// Several nodes: a peer on the first that missed a rank is not taken for one that failed by itself.
TEST(Outcome, WhoMissedAnotherIsTheLastToBeBlamed) {
  RankEnd peer = exited(0, 0, 3), network = exited(2, 1, 3);
  peer.failure = Failure::kPeerLost;
  network.failure = Failure::kNetwork;
  EXPECT_EQ(together(std::vector{of({peer}), of({exited(3, 0, 3)})}).rank, 3);
  EXPECT_EQ(together(std::vector{of({peer}), of({network})}).rank, 2);
  EXPECT_EQ(of({peer, exited(1, 1, 3)}).rank, 1);
}

TEST(Outcome, NothingIsRestartedBesideARankThatCannotBeKilled) {
  RankEnd stuck = exited(1, 1, 0);
  stuck.killed = stuck.unkillable = true;
  const Outcome alone = of({exited(0, 0, 3), stuck});
  EXPECT_EQ(alone.kind, EndKind::kUnkillable);
  EXPECT_EQ(alone.code, 3);
  EXPECT_FALSE(alone.curable);
  const Outcome beside = of({signalled(0, 0, SIGSEGV), stuck});
  EXPECT_EQ(beside.rank, 0);
  EXPECT_FALSE(beside.curable);
  EXPECT_NE(beside.what.find("rank 1 does not end after SIGKILL"), std::string::npos);
}

// A node whose ranks were stopped before they listened, and another's that only missed them.
TEST(Outcome, AStopOfOneNodeIsNoFailureOfTheOther) {
  RankEnd missed = exited(2, 0, 3);
  missed.failure = Failure::kPeerLost;
  const std::vector nodes = {of({missed}), of({signalled(0, 0, SIGTERM)}, SIGTERM)};
  EXPECT_EQ(together(nodes).code, 75);
  EXPECT_EQ(together(nodes).cause, Cause::kNone);
  const std::vector failed = {of({signalled(2, 0, SIGSEGV)}), nodes[1]};
  EXPECT_EQ(together(failed).code, 3);
  EXPECT_EQ(together(std::vector{of({missed})}).code, 3);
  const std::vector mixed = {of({signalled(2, 0, SIGSEGV)}), of({exited(0, 0, 4)})};
  EXPECT_FALSE(together(mixed).curable);
}

TEST(Outcome, WorstOfNodes) {
  const Outcome fine, gone = of({signalled(5, 0, SIGSEGV)}), told = of({exited(0, 0, 3)});
  const Outcome stopped = of({exited(0, 0, 75)});
  EXPECT_EQ(worst(std::vector{told, fine, gone}).rank, 5);
  EXPECT_EQ(worst(std::vector{fine, stopped}).code, 75);
  EXPECT_EQ(worst(std::vector{fine, fine}).code, 0);
}

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = RestartPolicy::Clock;

RestartPolicy policy_of(int64_t most, int minutes = 60) {
  return {most, std::chrono::minutes(minutes), 1};
}

TEST(Restart, OnlyWhatARestartCures) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  EXPECT_TRUE(policy_of(1).decide(killed, std::nullopt).restart);
  EXPECT_TRUE(policy_of(1).decide(of({exited(0, 0, 3)}), 5).restart);
  EXPECT_FALSE(policy_of(0).decide(killed, 5).restart);
  for (const int code : {1, 2, 4, 5})
    EXPECT_FALSE(policy_of(9).decide(of({exited(0, 0, code)}), 5).restart) << code;
  EXPECT_NE(policy_of(9).decide(of({exited(0, 0, 4)}), 5).reason.find("at fault: the training"),
            std::string::npos);
}

TEST(Restart, ABudgetWithinAWindow) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  const Clock::time_point start = Clock::now();
  const auto at = [&](int minutes) { return start + std::chrono::minutes(minutes); };
  RestartPolicy policy = policy_of(2);
  EXPECT_EQ(policy.decide(killed, 20, at(0)).reason, "restart 1 of 2, from step 20");
  EXPECT_EQ(policy.decide(killed, 30, at(10)).reason, "restart 2 of 2, from step 30");
  const auto full = policy.decide(killed, 40, at(59));
  EXPECT_FALSE(full.restart);
  EXPECT_NE(full.reason.find("all 2 restarts of the last 60 minutes are used"), std::string::npos)
      << full.reason;
  EXPECT_TRUE(policy.decide(killed, 50, at(61)).restart);   // the first is past
  EXPECT_FALSE(policy.decide(killed, 60, at(62)).restart);  // the second is not
  // A run of weeks has no other bound.
  RestartPolicy weeks = policy_of(2);
  for (int day = 0; day < 60; ++day)
    EXPECT_TRUE(weeks.decide(killed, day + 1, at(day * 24 * 60)).restart) << day;
}

TEST(Restart, WithoutAGainItWaitsLongerEachTimeAndEnds) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  RestartPolicy policy = policy_of(10);
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(policy.decide(killed, 20, now).wait, milliseconds(0));
  double expected = 2;
  for (int restart = 2; restart <= 10; ++restart, expected = std::min(120.0, 2 * expected)) {
    const auto decision = policy.decide(killed, 20, now);
    ASSERT_TRUE(decision.restart) << restart;
    const double waits = static_cast<double>(decision.wait.count()) / 1000;
    EXPECT_GE(waits, 0.75 * expected - 0.001) << restart;
    EXPECT_LE(waits, 1.25 * expected + 0.001) << restart;
  }
  const auto stuck = policy_of(10).decide(killed, 20, now);
  EXPECT_TRUE(stuck.restart);
  // An hour later the window is empty again; what was never gained is not forgotten.
  const auto later = policy.decide(killed, 20, now + std::chrono::hours(2));
  EXPECT_FALSE(later.restart);
  EXPECT_NE(later.reason.find("no checkpoint was gained over 10 restarts in a row"),
            std::string::npos)
      << later.reason;
  EXPECT_EQ(policy.decide(killed, 21, now + std::chrono::hours(2)).wait, milliseconds(0));
}

// A file server that is away for two minutes, at five restarts.
TEST(Restart, AnOutageOfTwoMinutesIsSurvived) {
  RankEnd stale = exited(0, 0, 3);
  stale.failure = Failure::kStorage;
  const Outcome outcome = of({stale});
  RestartPolicy policy = policy_of(5);
  milliseconds waited{0};
  for (int restart = 0; restart < 5; ++restart) {
    const auto decision = policy.decide(outcome, 20, Clock::now() + waited);
    ASSERT_TRUE(decision.restart);
    waited += decision.wait;
  }
  EXPECT_GT(waited, seconds(120));
}

TEST(Restart, WaitsDiffer) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  std::set<int64_t> waits;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RestartPolicy policy(9, std::chrono::minutes(60), seed);
    policy.decide(killed, 1);
    waits.insert(policy.decide(killed, 1).wait.count());
  }
  EXPECT_GT(waits.size(), 15u);
}

TEST(Restart, CheckpointsOfThisRun) {
  const Scratch folder;
  const auto save = [&](const char* name, bool whole) {
    fs::create_directories(folder / name);
    if (whole) write_file_atomic(folder / name / "manifest.json", "{}");
  };
  EXPECT_TRUE(checkpoints_in(folder / "none").empty());
  save("step-00000100", true);
  const Checkpoints before = checkpoints_in(folder.path());
  EXPECT_EQ(before.size(), 1u);
  EXPECT_FALSE(newest_step(before, before));  // an older run's
  save("step-00000040", true);
  save("step-00000050", false);
  save(".tmp-step-00000060-1", true);
  EXPECT_EQ(newest_step(checkpoints_in(folder.path()), before), 40);
  EXPECT_EQ(newest_step(checkpoints_in(folder.path()), {}), 100);
}

TEST(Restart, ResumingCommand) {
  EXPECT_EQ(resuming({"octavo", "train", "a.yaml"}),
            (Texts{"octavo", "train", "a.yaml", "--resume", "latest"}));
  EXPECT_EQ(resuming({"octavo", "train", "--resume", "best", "--seed", "1", "--resume=x"}),
            (Texts{"octavo", "train", "--seed", "1", "--resume", "latest"}));
  // What was to be overwritten is gone; this run's checkpoints must stay.
  EXPECT_EQ(resuming({"octavo", "train", "--overwrite", "--overwrite=true"}),
            (Texts{"octavo", "train", "--resume", "latest"}));
}

TEST(Restart, CheckpointRoot) {
  config::Settings settings;
  EXPECT_EQ(checkpoint_root(settings), "checkpoints");
  settings.use_fp8 = true;
  EXPECT_EQ(checkpoint_root(settings), "checkpoints_fp8");
  settings.checkpoint_dir = "elsewhere";
  EXPECT_EQ(checkpoint_root(settings), "elsewhere");
}

void save_manifest(const fs::path& folder, const std::string& run) {
  fs::create_directories(folder);
  write_file_atomic(folder / "manifest.json", R"({"extra": {"run_name": ")" + run + "\"}}");
}

TEST(Restart, CheckpointsOfOneRunAmongSeveral) {
  const Scratch root;
  save_manifest(root / "a/step-00000010", "a");
  save_manifest(root / "b/step-00000090", "b");
  // From before runs had folders of their own.
  save_manifest(root / "step-00000030", "old");
  save_manifest(root / "step-00000040", "older");
  EXPECT_EQ(newest_step(checkpoints_of(root.path(), "a"), {}), 10);
  EXPECT_EQ(newest_step(checkpoints_of(root.path(), "old"), {}), 30);
  EXPECT_TRUE(checkpoints_of(root.path(), "c").empty());
}

TEST(Restart, TheNameOfARunThatHasNone) {
  const Scratch root;
  config::Settings settings;
  settings.checkpoint_dir = root.path().string();
  settings.model_name = "some/model";
  save_manifest(root / "a/step-00000010", "a");
  fs::create_directory_symlink("step-00000010", root / "a/latest");
  fs::create_directory_symlink("a/latest", root / "latest");
  expect_failure(ExitCode::kUsage, "--run_name NAME", [&] { want_run_name(settings); });
  EXPECT_EQ(name_of_run(settings).substr(0, 11), "model-bf16-");
  for (const std::string& what : {std::string("latest"), std::string("best"), std::string("a"),
                                  std::string("a/step-00000010"), (root / "a").string(),
                                  (root / "a/step-00000010").string()}) {
    settings.resume = what;
    EXPECT_EQ(name_of_run(settings), "a") << what;
  }
  for (const char* what :
       {"s3://bucket/prefix/b", "s3://bucket/prefix/b/", "s3://bucket/prefix/b/step-00000010"}) {
    settings.resume = what;
    EXPECT_EQ(name_of_run(settings), "b") << what;
  }
  settings.run_name = "mine";
  EXPECT_EQ(name_of_run(settings), "mine");
  settings.resume = "";
  want_run_name(settings);
}

TEST(NodePlace, KeysAndGuide) {
  config::Settings settings;
  settings.nproc = 4;
  RankInfo rank_info = node_rank_info(settings, {{"MASTER_ADDR", "10.0.0.9"}});
  EXPECT_EQ(rank_info.ranks, 4);
  EXPECT_EQ(rank_info.master_address, "127.0.0.1");
  EXPECT_EQ(rank_info.master_port, 0);

  settings.nnodes = 3;
  expect_failure(ExitCode::kUsage, "wanted node_rank", [&] { node_rank_info(settings, {}); });
  settings.node_rank = 3;
  expect_failure(ExitCode::kUsage, "from 0 to 2", [&] { node_rank_info(settings, {}); });
  settings.node_rank = 2;
  expect_failure(ExitCode::kUsage, "wanted master_address", [&] { node_rank_info(settings, {}); });
  settings.master_address = "first";
  rank_info = node_rank_info(settings, {});
  EXPECT_EQ(rank_info.rank, 8);
  EXPECT_EQ(rank_info.ranks, 12);
  EXPECT_EQ(rank_info.master_port, 29500);

  const Variables guide = {{"GPU_NUM", "2"},
                           {"WORLD_SIZE", "2"},
                           {"RANK", "1"},
                           {"MASTER_ADDR", "10.0.0.9"},
                           {"MASTER_PORT", "1234"}};
  rank_info = node_rank_info(config::Settings{}, guide);
  EXPECT_EQ(rank_info.rank, 2);
  EXPECT_EQ(rank_info.ranks, 4);
  EXPECT_EQ(rank_info.master_address, "10.0.0.9");
  EXPECT_EQ(rank_info.master_port, 1234);
}

// An elastic run waits for its nodes itself; its other restarts are as ever.
TEST(RestartPolicy, NodesThatAreWaitedForElsewhere) {
  RestartPolicy policy = policy_of(9), elastic = policy_of(9);
  elastic.add_no_wait_for_nodes();
  Outcome lost{.code = 3, .cause = Cause::kSilent, .kind = EndKind::kLostNode, .curable = true};
  EXPECT_GT(policy.decide(lost, 5).wait.count(), 0);
  for (int time = 0; time < 3; ++time) {
    const RestartPolicy::Decision decision = elastic.decide(lost, 5);
    EXPECT_TRUE(decision.restart);
    EXPECT_EQ(decision.wait.count(), 0);
    EXPECT_EQ(decision.reason.find(", in "), std::string::npos);
  }
  lost.kind = EndKind::kStorage;
  EXPECT_GT(elastic.decide(lost, 5).wait.count(), 0);
}

// One launcher on each node of a job whose node list has a hole.
TEST(NodeRankInfo, SlurmSaysWhichNodeThisIs) {
  Variables step = {{"SLURM_JOB_ID", "4711"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", "2"},
                    {"SLURM_STEP_NUM_TASKS", "3"},
                    {"SLURM_LOCALID", "0"},
                    {"SLURM_NODEID", "2"},
                    {"SLURM_STEP_NUM_NODES", "3"},
                    {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                    {"SLURM_STEP_NODELIST", "gpu[03,07-08]"}};
  config::Settings settings;
  settings.nproc = 8;
  settings.least_nodes = 2;
  settings.nnodes = 4;  // it got three
  RankInfo place = node_rank_info(settings, step);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.nodes, 4);
  EXPECT_EQ(place.local_ranks, 8);
  EXPECT_EQ(place.launcher, "octavo");
  EXPECT_EQ(place.master_address, "gpu03");
  EXPECT_EQ(place.master_port, 16711);
  settings.spares = 1;
  EXPECT_EQ(node_rank_info(settings, step).nodes, 5);
  settings = {};
  settings.nproc = 8;
  EXPECT_EQ(node_rank_info(settings, step).nodes, 3);
  settings.node_rank = 0;  // what is given counts
  settings.nnodes = 1;
  EXPECT_EQ(node_rank_info(settings, step).nodes, 1);
}

}  // namespace
}  // namespace octavo::launch

#include "launch/restart.h"

#include <gtest/gtest.h>

#include <csignal>

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

TEST(Outcome, WorstOfNodes) {
  const Outcome fine, gone = of({signalled(5, 0, SIGSEGV)}), told = of({exited(0, 0, 3)});
  const Outcome stopped = of({exited(0, 0, 75)});
  EXPECT_EQ(worst(std::vector{told, fine, gone}).rank, 5);
  EXPECT_EQ(worst(std::vector{fine, stopped}).code, 75);
  EXPECT_EQ(worst(std::vector{fine, fine}).code, 0);
}

TEST(Restart, OnlyWhatARestartCures) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  EXPECT_TRUE(RestartPolicy(1).decide(killed, std::nullopt).restart);
  EXPECT_TRUE(RestartPolicy(1).decide(of({exited(0, 0, 3)}), 5).restart);
  EXPECT_FALSE(RestartPolicy(0).decide(killed, 5).restart);
  for (const int code : {1, 2, 4, 5})
    EXPECT_FALSE(RestartPolicy(9).decide(of({exited(0, 0, code)}), 5).restart) << code;
}

TEST(Restart, GivesUpWhenNoStepWasGained) {
  const Outcome killed = of({signalled(0, 0, SIGKILL)});
  RestartPolicy policy(10);
  const auto first = policy.decide(killed, 20);
  EXPECT_EQ(first.reason, "restart 1 of 10, from step 20");
  EXPECT_TRUE(policy.decide(killed, 30).restart);
  const auto stuck = policy.decide(killed, 30);
  EXPECT_FALSE(stuck.restart);
  EXPECT_NE(stuck.reason.find("no step was gained since restart 2"), std::string::npos);

  RestartPolicy early(10);
  EXPECT_TRUE(early.decide(killed, std::nullopt).restart);
  EXPECT_FALSE(early.decide(killed, std::nullopt).restart);

  RestartPolicy few(1);
  EXPECT_TRUE(few.decide(killed, 1).restart);
  EXPECT_EQ(few.decide(killed, 2).reason, "all 1 restarts are used");
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
  EXPECT_EQ(name_of_run(settings, true).substr(0, 11), "model-bf16-");
  save_manifest(root / "a/step-00000010", "a");
  fs::create_directory_symlink("step-00000010", root / "a/latest");
  fs::create_directory_symlink("a/latest", root / "latest");
  EXPECT_EQ(name_of_run(settings, true), "a");
  EXPECT_EQ(name_of_run(settings, false).substr(0, 11), "model-bf16-");
  for (const std::string& what : {std::string("latest"), std::string("best"), std::string("a"),
                                  std::string("a/step-00000010"), (root / "a").string(),
                                  (root / "a/step-00000010").string()}) {
    settings.resume = what;
    EXPECT_EQ(name_of_run(settings, false), "a") << what;
  }
  settings.run_name = "mine";
  EXPECT_EQ(name_of_run(settings, true), "mine");
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

}  // namespace
}  // namespace octavo::launch

#include "compare/runs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "compare/synthetic_run.h"
#include "expect_failure.h"

namespace octavo::compare {
namespace {

class RunsTest : public ScratchTest {
 protected:
  config::Parsed parsed(std::vector<std::string> flags, const std::string& yaml) {
    write_file_atomic(folder_ / "c.yaml", yaml);
    flags.insert(flags.begin(), (folder_ / "c.yaml").string());
    flags.push_back("--runs_dir=" + folder_.string());
    return config::parse(
        flags, {.verb = "compare", .reader = config::reader::kCompare | config::reader::kTrain});
  }
  static bool has(const PlannedRun& run, const std::string& argument) {
    return std::ranges::count(run.arguments, argument) == 1;
  }
};

TEST_F(RunsTest, BothSidesOfEverySeedInTurns) {
  const RunPlan plan =
      plan_runs(parsed({"--seeds=2", "--batch_size=4"}, "use_fp8: true\nseed: 5\nmax_steps: 9\n"));
  ASSERT_EQ(plan.runs.size(), 4u);
  EXPECT_EQ(plan.runs[0].name, "a-5");
  EXPECT_EQ(plan.runs[1].name, "b-5");
  EXPECT_EQ(plan.runs[2].name, "b-6");
  EXPECT_EQ(plan.runs[3].name, "a-6");
  EXPECT_EQ(plan.folder, folder_ / "compare-c");
  EXPECT_EQ(plan.steps, 9);
  EXPECT_TRUE(has(plan.runs[0], "--mixed_precision=bf16"));
  EXPECT_TRUE(has(plan.runs[0], "--use_fp8=false"));
  EXPECT_FALSE(has(plan.runs[1], "--mixed_precision=bf16"));
  for (const PlannedRun& run : plan.runs) EXPECT_TRUE(has(run, "--batch_size=4"));
  EXPECT_TRUE(has(plan.runs[3], "--seed=6"));
  // A configuration in BF16 is compared with FP8.
  EXPECT_TRUE(has(plan_runs(parsed({}, "seed: 5\n")).runs[1], "--mixed_precision=fp8"));
}

TEST_F(RunsTest, AFilesRunKeepsItsFolder) {
  EXPECT_EQ(plan_runs(parsed({}, "run_name: mine\n")).folder, folder_ / "compare-c");
  EXPECT_EQ(plan_runs(parsed({"--run_name=both"}, "run_name: mine\n")).folder, folder_ / "both");
}

TEST_F(RunsTest, SidesMayDifferInAnyKeyOfTrain) {
  const RunPlan plan = plan_runs(
      parsed({"--a=fp8_margin=0", "--b=fp8_margin=3,fp8_recipe=current"}, "use_fp8: true\n"));
  EXPECT_TRUE(has(plan.runs[0], "--fp8_margin=0"));
  EXPECT_TRUE(has(plan.runs[1], "--fp8_recipe=current"));
  const auto refused = [&](const std::string& side, const std::string& part) {
    expect_failure(ExitCode::kUsage, part, [&] { plan_runs(parsed({"--b=" + side}, "")); });
  };
  refused("fp8_margins=3", "fp8_margin");
  refused("fp8_margin", "key=value");
  refused("seed=4", "seed");
  refused("prompt=x", "prompt");
  refused("fp8_margin=lots", "lots");
}

TEST_F(RunsTest, AFlagsRecipeIsForTheSidesInFp8) {
  const RunPlan plan = plan_runs(parsed({"--fp8_recipe=current"}, "seed: 5\n"));
  EXPECT_TRUE(has(plan.runs[0], "--mixed_precision=bf16"));
  EXPECT_FALSE(has(plan.runs[0], "--fp8_recipe=current"));
  EXPECT_TRUE(has(plan.runs[1], "--fp8_recipe=current"));
  const RunPlan both = plan_runs(parsed(
      {"--use_fp8", "--a=mixed_precision=fp32", "--b=fp8_scenario=mxfp8", "--fp8_recipe=current"},
      "seed: 5\n"));
  EXPECT_FALSE(has(both.runs[0], "--use_fp8=true"));
  EXPECT_FALSE(has(both.runs[1], "--fp8_recipe=current"));
}

TEST_F(RunsTest, OtherSettingsInTheFolderAreNoticed) {
  const RunPlan plan = plan_runs(parsed({}, "use_fp8: true\n"));
  fs::create_directories(plan.folder);
  write_file_atomic(plan.folder / "a-1337.command", "something else\n");
  expect_failure(ExitCode::kUsage, "other settings", [&] { make_runs(plan); });
}

// What run_child throws when these signals come while a child runs that saves, for half a second.
std::string stopped_by(const std::vector<int>& signals, const fs::path& log) {
  SignalWatch watch;
  size_t sent = 0;
  const auto tick = [&](const std::string& line) {  // "ready": its traps are set
    if (line == "ready" && sent < signals.size()) kill(getpid(), signals[sent++]);
  };
  try {
    run_child({"/bin/bash", "-c",
               "trap 'stop=1' TERM INT USR1; echo ready; while [ -z \"$stop\" ]; do sleep 0.05; "
               "done; for i in {1..10}; do sleep 0.1; done; exit 75"},
              log, watch, tick);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kStopped) << error.what();
    return error.what();
  }
  return "it ran to its end";
}

TEST_F(RunsTest, OnlyAskingTwiceEndsARunAtOnce) {
  const fs::path log = folder_ / "child.log";
  const std::string saved = "[compare] stopped on request", ended = "[compare] ended on request";
  EXPECT_TRUE(stopped_by({SIGTERM}, log).starts_with(saved));
  EXPECT_TRUE(stopped_by({SIGUSR1, SIGUSR1}, log).starts_with(saved));
  EXPECT_TRUE(stopped_by({SIGUSR1, SIGTERM}, log).starts_with(saved)) << "as Slurm does";
  EXPECT_TRUE(stopped_by({SIGTERM, SIGINT}, log).starts_with(ended));
}

TEST_F(RunsTest, PairsOfAFolder) {
  for (const char* name : {"a-2", "b-2", "a-10", "b-10", "a-3", "a-x", "samples"})
    fs::create_directories(folder_ / name);
  const auto pairs = pairs_in(folder_);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].first, folder_ / "a-2");
  EXPECT_EQ(pairs[1].second, folder_ / "b-10");
}

}  // namespace
}  // namespace octavo::compare

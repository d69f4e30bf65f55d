#include "train/guards/bad_step.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "expect_failure.h"
#include "train/guards/replay.h"
#include "train/loop.h"
#include "train/state/remote.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

using config::BadSteps;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class BadStep : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    set_log_level(LogLevel::kError);
  }
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    TrainTest::TearDown();
  }
  // A run that has learned a little.
  std::unique_ptr<train::Run> started(BadSteps policy, int64_t budget = 20) const {
    auto s = settings();
    s.bad_steps = policy;
    s.bad_step_budget = budget;
    s.checkpoint_dir = (folder / "checkpoints").string();
    auto run = start(s);
    for (int i = 0; i < 40; ++i) train_step(*run);
    return run;
  }
  // The run takes its losses for unusually high ones.
  static void expect_lower(train::Run& run) {
    for (int i = 0; i < 128; ++i) run.guards.losses.add(0.1 + 1e-4 * (i % 7));
  }
  static at::Tensor weight_of(const train::Run& run) {
    return run.trained.model->params().front()->master;
  }
};

TEST_F(BadStep, ANanInAWeightIsNamedAndEndsTheRun) {
  const auto run = started(BadSteps::kStop);
  const auto& param = run->trained.model->params()[3];
  param->master.view({-1})[1].fill_(kNan);
  const auto steps = run->trained.optimizer->steps();
  try {
    train_step(*run);
    FAIL() << "the step was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kGuard);
    EXPECT_NE(std::string(error.what()).find("first seen in " + param->name), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(run->trained.optimizer->steps(), steps);
  ASSERT_EQ(run->guards.incidents.size(), 1u);
  EXPECT_EQ(run->guards.incidents[0].cause, Cause::kHardware);
  EXPECT_EQ(run->guards.incidents[0].action, "run ended");
}

TEST_F(BadStep, AWeightThatIsNotFiniteIsHealedByARollbackAlone) {
  for (const auto policy : {BadSteps::kSkip, BadSteps::kRollBack}) {
    const auto run = started(policy);
    run->trained.model->params()[3]->master.view({-1})[1].fill_(kNan);
    const bool resumes = policy == BadSteps::kRollBack;
    if (resumes)
      EXPECT_TRUE(train_step(*run).skipped);
    else
      expect_failure(ExitCode::kGuard, "cannot repair a non-finite weight",
                     [&] { train_step(*run); });
  }
}

TEST_F(BadStep, AGradientThatNoGemmReadsIsNamedItself) {
  const auto run = started(BadSteps::kSkip);
  Incident incident;
  incident.step = run->progress.step + 1;
  incident.what = "the gradient of a weight is not finite";
  incident.loss = 1;
  std::vector<data::Batch> batches = {run->data.loader->next()};
  replay_step(run->settings, run->world, run->trained, batches, 1, incident);
  EXPECT_EQ(incident.place, "");  // and not the head or the loss
}

TEST_F(BadStep, ASpikeIsFlaggedSkippedOrRolledBack) {
  for (const auto policy : {BadSteps::kStop, BadSteps::kSkip, BadSteps::kRollBack}) {
    const auto run = started(policy);
    save(*run, "run", false, nullptr);
    const at::Tensor saved = weight_of(*run).clone();
    expect_lower(*run);
    const bool skips = policy != BadSteps::kStop;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(train_step(*run).skipped, skips);
    EXPECT_EQ(at::equal(weight_of(*run), saved), skips);
    EXPECT_EQ(rollback_is_due(policy, run->progress), policy == BadSteps::kRollBack);
    EXPECT_EQ(run->progress.bad_step_skips, skips ? 3 : 0);
    EXPECT_EQ(run->progress.step, 43);  // a skipped step is a step
    EXPECT_EQ(run->progress.position.samples, 43u * 4);
  }
}

TEST_F(BadStep, ARollbackBringsBackWeightsAndMomentsAlone) {
  const auto run = started(BadSteps::kRollBack);
  save(*run, "run", false, nullptr);
  const at::Tensor saved = weight_of(*run).clone();
  for (int i = 0; i < 5; ++i) train_step(*run);
  ASSERT_FALSE(at::equal(weight_of(*run), saved));
  expect_lower(*run);
  for (int i = 0; i < 3; ++i) train_step(*run);
  EXPECT_TRUE(is_suspect(BadSteps::kRollBack, run->progress));
  roll_back(*run);
  EXPECT_FALSE(is_suspect(BadSteps::kRollBack, run->progress));
  EXPECT_TRUE(at::equal(weight_of(*run), saved));
  EXPECT_EQ(run->trained.optimizer->steps(), 40);
  EXPECT_EQ(run->progress.step, 48);
  EXPECT_EQ(run->guards.incidents.back().first_sample, 40u * 4);
  EXPECT_EQ(run->guards.incidents.back().end_sample, 48u * 4);
  EXPECT_EQ(run->guards.losses.recent().size(), 40u);  // what the old weights are judged by
  EXPECT_FALSE(train_step(*run).skipped);
}

TEST_F(BadStep, ARollbackTakesNoCheckpointOfAnotherRun) {
  save(*started(BadSteps::kStop), "another", false, nullptr);
  const auto run = started(BadSteps::kRollBack);
  expect_failure(ExitCode::kGuard, "nothing was saved in this run", [&] { roll_back(*run); });
}

TEST_F(BadStep, ARollbackAfterAFailedSaveTakesNoBranchThatWasGivenUp) {
  const auto given_up = started(BadSteps::kRollBack);
  save(*given_up, "run", false, nullptr);
  const at::Tensor saved = weight_of(*given_up).clone();
  train_step(*given_up);
  save(*given_up, "run", false, nullptr);
  auto s = given_up->settings;
  s.resume = "step-00000040";
  const auto run = start(s);
  train_step(*run);
  write_file_atomic(folder / "checkpoints/blocked", "no folder");
  start_save(*run, "blocked", false, nullptr);
  roll_back(*run);
  EXPECT_TRUE(at::equal(weight_of(*run), saved));
}

TEST_F(BadStep, WeightsThatAreNotFiniteBecomeNeitherLatestNorBest) {
  const auto run = started(BadSteps::kRollBack);
  save(*run, "run", false, nullptr);
  const at::Tensor saved = weight_of(*run).clone();
  train_step(*run);
  run->trained.model->params()[3]->master.view({-1})[1].fill_(kNan);
  const double loss = 1;
  start_save(*run, "run", true, &loss);
  EXPECT_FALSE(finish_saves(*run));
  EXPECT_EQ(run->saver->counts().failed_in_a_row, 1);  // max_failed_saves counts it
  expect_failure(ExitCode::kGuard, "wanted finite weights",
                 [&] { save(*run, "run", false, nullptr); });
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints/run/latest"), "step-00000040");
  EXPECT_FALSE(fs::is_symlink(folder / "checkpoints/run/best_model"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(train_step(*run).skipped);
  roll_back(*run);
  EXPECT_TRUE(at::equal(weight_of(*run), saved));
  EXPECT_FALSE(refuses_save(*run, "run"));
}

TEST_F(BadStep, APermanentCheckpointThatWaitedForAGoodStepIsPermanent) {
  const auto run = started(BadSteps::kRollBack);
  run->progress.permanent_due = 40;
  for (int i = 0; i < 2; ++i) {
    train_step(*run);
    start_save(*run, "run", false, nullptr);
  }
  EXPECT_TRUE(finish_saves(*run));
  const auto rows = checkpoint::list(folder / "checkpoints/run");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].step == 41 && rows[0].is_permanent);
  EXPECT_FALSE(rows[1].is_permanent);
}

// Nothing else asks for a save: it is due again at tenths of permanent_checkpoint_freq.
TEST_F(BadStep, APermanentCheckpointThatCouldNotBeSavedIsDueAgain) {
  const auto run = started(BadSteps::kSkip);
  run->settings.checkpoint_freq = 0;
  run->settings.permanent_checkpoint_freq = 20;
  run->progress.permanent_due = 40;
  float* weight = run->trained.model->params()[3]->master.view({-1}).data_ptr<float>();
  const float value = std::exchange(*weight, static_cast<float>(kNan));
  start_save(*run, "run", false, nullptr);  // is left out
  *weight = value;
  EXPECT_FALSE(save_is_due_by_time(*run));  // in step 41
  run->progress.step = 41;
  EXPECT_TRUE(save_is_due_by_time(*run));
  run->settings.checkpoint_freq = 10;
  EXPECT_FALSE(save_is_due_by_time(*run));
  run->settings.checkpoint_freq = 0;
  run->progress.step = 42;
  start_save(*run, "run", false, nullptr);
  EXPECT_TRUE(finish_saves(*run));
  EXPECT_TRUE(checkpoint::list(folder / "checkpoints/run").at(0).is_permanent);
  run->progress.step = 43;
  EXPECT_FALSE(save_is_due_by_time(*run));
}

TEST_F(BadStep, CheckpointsOfPermanentCheckpointFreqAreMarked) {
  auto s = settings();
  s.run_name = "marked";
  s.runs_dir = (folder / "runs").string();
  s.checkpoint_dir = (folder / "checkpoints").string();
  s.num_threads = 1;
  s.max_steps = 5;
  s.checkpoint_freq = 1;
  s.keep_checkpoints = 1;
  s.permanent_checkpoint_freq = 2;
  EXPECT_EQ(train(s), 0);
  const auto rows = checkpoint::list(folder / "checkpoints/marked");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[0].step == 2 && rows[0].is_permanent);
  EXPECT_TRUE(rows[1].step == 4 && rows[1].is_permanent);
  EXPECT_TRUE(rows[2].is_latest && !rows[2].is_permanent);

  // What a run that resumes uploads: none of a branch that was given up, or of another run.
  s.resume = "step-00000002";
  const auto run = start(s);
  const auto found = permanent_to_upload(*run);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].filename(), "step-00000002");
  s.resume = "latest";
  EXPECT_EQ(permanent_to_upload(*start(s)).size(), 2u);
  run->claim.run_id = "of another run";
  EXPECT_TRUE(permanent_to_upload(*run).empty());
}

// The run that is asked to stop starts from weights that are not finite, and has nothing else.
TEST_F(BadStep, AStopWithWeightsThatAreNotFiniteSavesNothing) {
  auto s = saved_run().first;
  checkpoint::State state = checkpoint::load(folder / "checkpoints/saved/step-00000001");
  for (auto& [name, values] : state.groups.at("model")) values = values.clone().fill_(kNan);
  s.init_from = checkpoint::save(folder / "bad", state, {}).string();
  s.bad_steps = BadSteps::kRollBack;
  s.run_name = "stopped";
  s.runs_dir = (folder / "runs").string();
  s.num_threads = 1;
  request_stop("a test");
  const int code = train(s);
  request_stop(nullptr);
  EXPECT_EQ(code, static_cast<int>(ExitCode::kStopped));
  EXPECT_TRUE(checkpoint::step_paths(folder / "checkpoints/stopped").empty());
}

TEST_F(BadStep, WithoutACheckpointARollbackEndsTheRun) {
  const auto run = started(BadSteps::kRollBack);
  expect_lower(*run);
  for (int i = 0; i < 3; ++i) train_step(*run);
  try {
    roll_back(*run);
    FAIL() << "there is nothing to go back to";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kGuard);
  }
}

TEST_F(BadStep, ABudgetEnds) {
  const auto run = started(BadSteps::kSkip, 2);
  expect_lower(*run);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(train_step(*run).skipped);
  try {
    train_step(*run);
    FAIL() << "the budget is used up";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kGuard);
    EXPECT_NE(std::string(error.what()).find("bad_step_budget"), std::string::npos);
  }
}

TEST_F(BadStep, AResumedRunRemembersItsLosses) {
  const auto run = started(BadSteps::kSkip);
  expect_lower(*run);
  train_step(*run);
  save(*run, "run", false, nullptr);
  auto s = run->settings;
  s.resume = "latest";
  const auto again = start(s);
  EXPECT_EQ(again->guards.losses.recent(), run->guards.losses.recent());
  EXPECT_EQ(again->progress.bad_step_skips, 1);
  EXPECT_TRUE(train_step(*again).skipped);
}

}  // namespace
}  // namespace octavo::train

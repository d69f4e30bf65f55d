#include "train/guards/bad_step.h"

#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "expect_failure.h"
#include "train/guards/replay.h"
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

#include "train/run_schedule.h"

#include "config/print.h"
#include "expect_failure.h"
#include "train/model_factory.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class RunSchedule : public TrainTest {
 protected:
  // What assembling these settings says.
  static std::string said(const config::Settings& s) {
    testing::internal::CaptureStderr();
    start(s);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(RunSchedule, AWarmupLongerThanTheEpochsIsRefused) {
  auto s = settings();
  s.max_steps = 0;
  s.num_epochs = 1;
  const auto run = start(s);
  s.warmup_steps = run->schedule.max_steps;
  EXPECT_EQ(start(s)->schedule.warmup_steps, s.warmup_steps);
  s.warmup_steps = 100'000;
  expect_failure(ExitCode::kUsage, "warmup_steps 100000", [&] { start(s); });
  expect_failure(ExitCode::kUsage, "--warmup_steps -1", [&] { start(s); });
}

TEST_F(RunSchedule, AResumeSaysWhatBecomesOfTheSchedule) {
  auto [s, run] = saved_run();
  s.resume = "latest";
  EXPECT_EQ(said(s).find("schedule"), std::string::npos);
  s.max_steps = 300;
  const std::string longer = said(s);
  for (const char* part : {"schedule is another one: max_steps 50 -> 300, warmup_steps 2 -> 15",
                           "At step 1 the rate is", "and was"})
    EXPECT_NE(longer.find(part), std::string::npos) << longer;
  s.max_steps = 50;
  s.learning_rate = 2e-2;
  EXPECT_NE(said(s).find("learning_rate 0.01 -> 0.02"), std::string::npos);
}

TEST_F(RunSchedule, LengthsStayInTheirStepsWhenTheBatchChanges) {
  auto s = settings();
  s.length_schedule = {"0 4", "0.1 8", "0.5 16"};
  using Stages = std::vector<data::LengthStage>;
  EXPECT_EQ(length_stages(s, 1, {}), (Stages{{0, 4}, {20, 8}, {100, 16}}));
  const Progress done{.step = 10, .position = {.samples = 40}};
  EXPECT_EQ(length_stages(s, 1, done), length_stages(s, 1, {}));
  s.batch_size = 8;
  EXPECT_EQ(length_stages(s, 1, done).back(), (data::LengthStage{40 + 15 * 8, 16}));
  EXPECT_EQ(sequence_length(s, 1, done, 40), 8);
  s.batch_size = 1;
  EXPECT_EQ(length_stages(s, 1, done).back(), (data::LengthStage{40 + 15, 16}));
  EXPECT_EQ(sequence_length(s, 1, done, 40), 8);
}

TEST_F(RunSchedule, AResumeSaysThatNothingIsLeft) {
  const optim::Schedule then{6e-4, 0.1, 150, 3000}, now{6e-4, 0.1, 15, 300};
  const std::string text = changed_schedule(then, now, 500);
  EXPECT_NE(text.find("nothing is left to train"), std::string::npos) << text;
  EXPECT_EQ(changed_schedule(then, then, 500), "");
}

TEST_F(RunSchedule, MaxStepsBehindTheCheckpointIsRefused) {
  auto [s, run] = saved_run();
  train_step(*run);
  save(*run, "saved", false, nullptr);
  s.resume = "latest";
  s.max_steps = 1;
  const config::Settings behind = s;
  for (const char* part : {"wanted max_steps of at least 2, the step of the checkpoint, found 1",
                           "raise max_steps", "--resume step-"})
    expect_failure(ExitCode::kUsage, part, [&] { start(behind); });
  s.max_steps = 2;
  const auto done = start(s);
  EXPECT_EQ(done->progress.step, 2);
  EXPECT_EQ(done->schedule.max_steps, 2);
}

TEST_F(RunSchedule, OlderCheckpointsHaveItInTheirConfig) {
  auto s = settings();
  const Json extra = {{"config", config::to_yaml(s)}};
  const auto saved = saved_schedule(extra, "old");
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->max_steps, 50);
  EXPECT_EQ(saved->warmup_steps, 2);
  s.max_steps = 0;
  EXPECT_FALSE(saved_schedule({{"config", config::to_yaml(s)}}, "old"));
  EXPECT_FALSE(saved_schedule({{"config", "no_such_key: 1\n"}}, "old"));
  const auto back = saved_schedule({{"schedule", schedule_json(*saved)}}, "new");
  EXPECT_EQ(changed_schedule(*saved, *back, 0), "");
}

TEST(Repeats, SourcesThatComeTooOftenAreNamed) {
  EXPECT_TRUE(repeated_sources({}).empty());
  EXPECT_EQ(repeated_sources({{.name = "web", .epochs = 4},
                              {.name = "books", .epochs = 6.25},
                              {.name = "code", .epochs = 40}}),
            (std::vector<std::string>{"books 6.25 times", "code 40 times"}));
}

TEST_F(RunSchedule, AResumeDoesNotSpeakOfRandomWeights) {
  auto [s, run] = saved_run();
  auto fresh = s;
  fresh.checkpoint_dir = (folder / "others").string();
  EXPECT_NE(said(fresh).find("weights: random, from seed"), std::string::npos);
  s.resume = "latest";
  EXPECT_EQ(said(s).find("weights: random"), std::string::npos);
}

}  // namespace
}  // namespace octavo::train

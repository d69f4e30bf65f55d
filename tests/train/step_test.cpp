#include "train/step.h"

#include <cmath>

#include "base/error.h"
#include "expect_failure.h"
#include "models/device_batch.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

using Step = TrainTest;

std::vector<at::Tensor> weights(const Run& run) {
  std::vector<at::Tensor> result;
  for (const auto& p : run.trained.model->params()) result.push_back(p->master.detach().clone());
  return result;
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, (a[i] - b[i]).abs().max().item<double>());
  return worst;
}

TEST_F(Step, LearnsInBothPrecisions) {
  for (const auto precision : {config::Precision::kFp32, config::Precision::kBf16}) {
    auto s = settings();
    s.mixed_precision = precision;
    const auto run = start(s);
    const auto first = train_step(*run);
    EXPECT_NEAR(first.loss, std::log(257), 0.1);
    EXPECT_EQ(first.step, 1);
    EXPECT_EQ(first.tokens, 64u);
    EXPECT_EQ(first.precision, precision == config::Precision::kBf16 ? "BF16" : "FP32");
    monitor::StepRecord last;
    for (int i = 1; i < 50; ++i) last = train_step(*run);
    EXPECT_LT(last.loss, 3);  // random bytes cost 5.5
    EXPECT_EQ(run->progress.step, 50);
    EXPECT_EQ(run->progress.position.samples, 200u);
    EXPECT_EQ(run->trained.optimizer->steps(), 50);
  }
}

TEST_F(Step, AccumulationIsOneLargerBatch) {
  auto s = settings();
  const auto whole = start(s);
  s.batch_size = 1;
  s.gradient_accumulation_steps = 4;
  const auto parts = start(s);
  for (int i = 0; i < 5; ++i) {
    const auto a = train_step(*whole), b = train_step(*parts);
    EXPECT_NEAR(a.loss, b.loss, 1e-4) << i;
    EXPECT_NEAR(a.grad_norm / b.grad_norm, 1, 1e-3) << i;
    EXPECT_EQ(a.tokens, b.tokens);
    if (i == 0) EXPECT_NEAR(a.loss, b.loss, 1e-6);
  }
}

TEST_F(Step, SameSeedSameBitsOtherSeedOthers) {
  auto s = settings();
  s.mixed_precision = config::Precision::kBf16;
  const auto a = start(s), b = start(s);
  s.seed += 1;
  const auto c = start(s);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(train_step(*a).loss, train_step(*b).loss);
    train_step(*c);
  }
  EXPECT_EQ(largest_difference(weights(*a), weights(*b)), 0);
  EXPECT_GT(largest_difference(weights(*a), weights(*c)), 0);
}

TEST_F(Step, EvaluationLeavesTrainingAlone) {
  const auto a = start(settings()), b = start(settings());
  const auto before = evaluate(*a), again = evaluate(*a);
  EXPECT_EQ(before.val_loss, again.val_loss);
  EXPECT_NEAR(before.val_loss, std::log(257), 0.1);
  EXPECT_EQ(before.tokens, 4 * 4 * 16);
  EXPECT_EQ(train_step(*a).loss, train_step(*b).loss);
  evaluate(*a);
  train_step(*a);
  train_step(*b);
  EXPECT_EQ(largest_difference(weights(*a), weights(*b)), 0);
}

TEST_F(Step, ALossThatIsNotFiniteStopsBeforeTheUpdate) {
  const auto run = start(settings());
  train_step(*run);
  {
    const at::NoGradGuard no_grad;
    run->trained.model->params().back()->master[3] = NAN;  // the bias of the last norm
  }
  const auto before = weights(*run);
  try {
    train_step(*run);
    FAIL() << "trained on NaN";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kGuard) << error.what();
  }
  const auto after = weights(*run);
  for (size_t i = 0; i + 1 < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
  EXPECT_EQ(run->progress.step, 1);
  EXPECT_EQ(run->trained.optimizer->steps(), 1);
}

TEST_F(Step, PenaltiesAreRecordedAndAct) {
  const auto plain = start(settings());
  EXPECT_EQ(train_step(*plain).penalty, 0);
  for (const auto type : {config::PenaltyType::kZLoss, config::PenaltyType::kActivationL2,
                          config::PenaltyType::kKurtosis}) {
    auto s = settings();
    s.penalty_weight = 0.1;
    s.penalty_type = type;
    const auto run = start(s);
    const auto record = train_step(*run);
    EXPECT_NEAR(record.loss, std::log(257), 0.1);  // the loss itself is reported without it
    EXPECT_GT(record.penalty, 0);
    if (type == config::PenaltyType::kZLoss) {
      EXPECT_NEAR(record.penalty, std::pow(std::log(257), 2), 1);
    }
    EXPECT_GT(largest_difference(weights(*run), weights(*plain)), 0) << name_of(type);
  }
}

TEST_F(Step, KeysOfRoutersNeedAModelThatHasSome) {
  for (const auto key :
       {&config::Settings::router_aux_loss_coef, &config::Settings::router_z_loss_coef}) {
    auto s = settings();
    s.*key = 0.01;
    expect_failure(ExitCode::kUsage, "has no routers", [&] { start(s); });
  }
}

TEST_F(Step, TrainsWithoutAValidationSplit) {
  auto s = settings();
  s.val_fraction = 0;
  s.eval_freq = 0;
  const auto run = start(s);
  EXPECT_EQ(run->data.val, nullptr);
  EXPECT_EQ(train_step(*run).step, 1);
}

TEST_F(Step, AnEpochThatIsNotOneStepIsRefused) {
  auto s = settings();
  s.max_steps = 0;
  s.batch_size = 100'000;
  EXPECT_THROW(start(s), Error);
}

TEST(Batch, IsCopiedToTheDevice) {
  data::Batch batch{.rows = 1,
                    .length = 3,
                    .inputs = {1, 2, 3},
                    .targets = {2, 3, -1},
                    .starts = {0},
                    .loss_tokens = 2,
                    .after = {}};
  const models::DeviceBatch moved = models::to_device(batch, at::kCPU);
  batch.inputs.assign(3, 99);
  EXPECT_TRUE(moved.tokens.ids.equal(at::tensor({1, 2, 3}, at::kInt)));
  EXPECT_TRUE(moved.targets.equal(at::tensor({2, 3, -1}, at::kInt)));
}

}  // namespace
}  // namespace octavo::train

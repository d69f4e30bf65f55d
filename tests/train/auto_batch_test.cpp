#include "train/batching/auto_batch.h"

#include <cmath>

#include "engine/allocator.h"
#include "expect_failure.h"
#include "train/batching/batch_note.h"
#include "train/batching/batch_search.h"
#include "train/evaluate.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

// Passes of a few megabytes beside weights of a few, so that a limit can lie between two sizes.
struct AutoBatch : TrainTest {
  void SetUp() override {
    TrainTest::SetUp();
    engine::install_cpu_allocator();
  }
  void TearDown() override { engine::limit_cpu_memory(0); }

  config::Settings wide() const {
    auto s = settings();
    s.n_embd = 128;
    s.max_seq_length = 128;
    s.max_steps = 6;
    s.learning_rate = 1e-3;
    return s;
  }
  // The fullest moment of a step of so many samples, of a process that does nothing else.
  double peak_of(int64_t rows) const {
    auto s = wide();
    s.batch_size = rows;
    const auto run = start(s);
    engine::trim_cpu_memory();
    engine::reset_cpu_peak();
    train_step(*run);
    return static_cast<double>(engine::cpu_memory().peak);
  }
  static void limit_to(double bytes) {
    engine::trim_cpu_memory();
    engine::limit_cpu_memory(static_cast<size_t>(bytes));
  }
};

TEST_F(AutoBatch, TheAllocatorRefusesWhatIsOverItsLimit) {
  const at::Tensor some = at::empty({1 << 20});
  limit_to(static_cast<double>(engine::cpu_memory().in_use) + 16e6);
  EXPECT_NO_THROW(at::empty({2 << 20}));
  EXPECT_NO_THROW(at::empty({3 << 20}));  // the block before it, which is kept, must go for it
  EXPECT_THROW(at::empty({8 << 20}), c10::OutOfMemoryError);
  engine::limit_cpu_memory(0);
  EXPECT_NO_THROW(at::empty({8 << 20}));
  EXPECT_GT(engine::available_cpu_memory(), size_t{1} << 20);
}

TEST_F(AutoBatch, FindsTheSizeThatFits) {
  const double eight = peak_of(8), sixteen = peak_of(16);
  ASSERT_GT(sixteen, 1.3 * eight);
  auto s = wide();
  s.target_effective_batch_size = 64;
  const auto run = start(s);
  limit_to((eight + sixteen) / 2);
  run->settings.auto_batch_size = true;
  settle_batch_size(*run);
  EXPECT_EQ(run->settings.batch_size, 8);
  EXPECT_EQ(run->settings.gradient_accumulation_steps, 8);
  EXPECT_EQ(run->batching.found, 8);
  EXPECT_GT(run->batching.trials, 1);
  EXPECT_LT(run->batching.trials, 8);
  open_loader(run->settings, run->world, run->progress, run->data);
  // The search leaves no trace: the run is the one that was told these sizes.
  s.target_effective_batch_size = 0;
  s.batch_size = 8;
  s.gradient_accumulation_steps = 8;
  const auto told = start(s);
  engine::limit_cpu_memory(0);
  for (int i = 0; i < 2; ++i) {
    const auto a = train_step(*run), b = train_step(*told);
    EXPECT_EQ(a.loss, b.loss) << i;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << i;
  }
  EXPECT_EQ(batching_receipt(run->settings, run->batching, 1)["samples_per_step"], 64);

  limit_to(static_cast<double>(engine::cpu_memory().in_use) + 1e6);
  run->settings.auto_batch_size = true;
  expect_failure(ExitCode::kEnvironment, "not even a pass of 1 sample",
                 [&] { settle_batch_size(*run); });
}

TEST_F(AutoBatch, FindsAnySizeWithoutATargetAndStaysUnderMax) {
  const double eight = peak_of(8), sixteen = peak_of(16);
  auto s = wide();
  s.gradient_accumulation_steps = 2;
  const auto run = start(s);
  limit_to((eight + sixteen) / 2);
  run->settings.auto_batch_size = true;
  settle_batch_size(*run);
  EXPECT_GE(run->settings.batch_size, 8);
  EXPECT_LT(run->settings.batch_size, 16);
  EXPECT_EQ(run->settings.gradient_accumulation_steps, 2);
  run->settings.max_batch_size = 5;
  settle_batch_size(*run);
  EXPECT_EQ(run->settings.batch_size, 5);

  // From the settings alone; no more samples than an epoch has.
  engine::limit_cpu_memory(0);
  s.auto_batch_size = true;
  const auto whole = start(s);
  EXPECT_EQ(whole->settings.batch_size,
            static_cast<int64_t>(whole->data.loader->samples_per_epoch()));
  s.max_batch_size = 3;
  const auto bounded = start(s);
  EXPECT_EQ(bounded->settings.batch_size, 3);
  EXPECT_EQ(train_step(*bounded).tokens, 3u * 2 * 128);
}

TEST_F(AutoBatch, ATargetIsKeptWithoutASearch) {
  auto s = settings();
  s.batch_size = 8;
  s.target_effective_batch_size = 36;
  s.max_batch_size = 7;
  const auto run = start(s);
  EXPECT_EQ(run->settings.batch_size, 6);
  EXPECT_EQ(run->settings.gradient_accumulation_steps, 6);
  EXPECT_EQ(run->batching.trials, 0);
  EXPECT_EQ(run->batching.found, 0);
}

TEST_F(AutoBatch, RunningOutOfMemoryGoesOnInSmallerPasses) {
  const double four = peak_of(4), eight = peak_of(8);
  ASSERT_GT(eight, 1.2 * four);
  auto s = wide();
  s.batch_size = 8;
  const auto run = start(s);
  const auto same_size = start(s);
  s.batch_size = 4;
  s.gradient_accumulation_steps = 2;
  const auto small = start(s);
  const auto first = train_step_in_memory(*run);
  EXPECT_EQ(first.loss, train_step(*same_size).loss);
  EXPECT_NEAR(first.loss, train_step(*small).loss, 1e-5);
  const double others = static_cast<double>(engine::cpu_memory().in_use) -
                        static_cast<double>(engine::cpu_memory().in_use) / 3;
  const auto before = evaluate(*run);
  for (int i = 1; i < 5; ++i) {
    limit_to((four + eight) / 2 + others);  // two more runs are in memory here
    const auto record = train_step_in_memory(*run);
    engine::limit_cpu_memory(0);
    EXPECT_EQ(run->batching.halvings, 1);
    EXPECT_EQ(run->settings.batch_size, 4);
    EXPECT_EQ(run->settings.gradient_accumulation_steps, 2);
    const auto wanted = train_step(*small);
    EXPECT_NEAR(record.loss, wanted.loss, 1e-4 * wanted.loss) << i;
    EXPECT_NEAR(record.grad_norm / wanted.grad_norm, 1, 1e-3) << i;
    EXPECT_EQ(record.tokens, wanted.tokens);
    EXPECT_EQ(run->progress.position.samples, small->progress.position.samples);
  }
  EXPECT_EQ(run->progress.step, 5);
  EXPECT_EQ(evaluate(*run).tokens, before.tokens);  // of as many samples as before
  EXPECT_EQ(batching_receipt(run->settings, run->batching, 1)["halvings"], 1);
}

TEST_F(AutoBatch, PassesOfOneSampleCannotBeHalved) {
  auto s = wide();
  s.batch_size = 1;
  const auto run = start(s);
  train_step_in_memory(*run);
  limit_to(static_cast<double>(engine::cpu_memory().in_use) + 1e5);
  EXPECT_THROW(train_step_in_memory(*run), c10::OutOfMemoryError);
  EXPECT_EQ(run->batching.halvings, 0);
}

// Counts updates, after which there is no memory.
class LastUpdate final : public optim::Optimizer {
 public:
  using Optimizer::Optimizer;
  optim::NamedTensors state() const override { return {}; }
  int updates = 0;

 private:
  void update(double, double) override {
    ++updates;
    engine::limit_cpu_memory(1);
  }
  void load_state(const optim::StateSource&) override {}
};

TEST_F(AutoBatch, AStepThatWasAppliedIsNotDoneAgain) {
  const auto run = start(settings());
  run->settings.record_samples = true;  // what takes memory after the update
  auto optimizer = std::make_unique<LastUpdate>(*run->trained.engine, run->trained.model->params(),
                                                optim::Options{});
  const LastUpdate& counted = *optimizer;
  run->trained.optimizer = std::move(optimizer);
  EXPECT_THROW(train_step_in_memory(*run), c10::OutOfMemoryError);
  EXPECT_EQ(counted.updates, 1);
  EXPECT_EQ(run->batching.halvings, 0);
}

TEST_F(AutoBatch, ANoteIsFollowedByARunOfTheSameBatchesAlone) {
  auto s = settings();
  s.run_name = "run";
  s.checkpoint_dir = (folder / "checkpoints").string();
  s.resume = "latest";
  s.batch_size = 8;
  dist::World world;
  const std::string asked = asked_batches(s);
  auto settled = s;
  settled.batch_size = 4;
  settled.gradient_accumulation_steps = 2;
  write_batch_note(settled, world, 7, {2, 4}, asked);
  EXPECT_EQ(batch_note(s, world), (Batches{2, 4}));
  s.gradient_accumulation_steps = 4;  // by who saw that memory ran out
  EXPECT_EQ(batch_note(s, world), std::nullopt);
  s.gradient_accumulation_steps = 1;
  s.batch_size = 1;
  EXPECT_EQ(batch_note(s, world), std::nullopt);
}

TEST_F(AutoBatch, Fp8GoesOnWithItsScales) {
  auto s = wide();
  s.mixed_precision = config::Precision::kFp8;
  s.batch_size = 8;
  const double whole = [&] {
    const auto run = start(s);
    train_step(*run);
    engine::trim_cpu_memory();
    engine::reset_cpu_peak();
    train_step(*run);
    return static_cast<double>(engine::cpu_memory().peak);
  }();
  const auto run = start(s);
  for (int i = 0; i < 3; ++i) train_step_in_memory(*run);
  limit_to(0.9 * whole);
  const auto halved_step = train_step_in_memory(*run);
  engine::limit_cpu_memory(0);
  EXPECT_EQ(run->batching.halvings, 1);
  EXPECT_GT(run->trained.fp8->layers_in_fp8(), 0);
  const auto undisturbed = start(s);
  monitor::StepRecord wanted;
  for (int i = 0; i < 4; ++i) wanted = train_step(*undisturbed);
  EXPECT_NEAR(halved_step.loss, wanted.loss, 1e-3 * wanted.loss);
  EXPECT_NEAR(train_step(*run).loss, train_step(*undisturbed).loss, 1e-3 * wanted.loss);
}

}  // namespace
}  // namespace octavo::train

// Runs of whole epochs are counted in samples: however often they are resumed, and with whatever
// steps, every sample is seen once in an epoch.

#include "train/run_schedule.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/log.h"
#include "expect_failure.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

using Samples = std::vector<uint64_t>;

class Epochs : public TrainTest {
 protected:
  config::Settings epochs(int64_t number) const {
    config::Settings s = settings();
    s.max_steps = 0;
    s.num_epochs = number;
    s.batch_size = 8;
    s.n_layer = 1;
    s.n_embd = 16;
    s.record_samples = true;
    s.checkpoint_dir = (folder / "checkpoints").string();
    return s;
  }
  static void add_steps(train::Run& run, int64_t steps, Samples& seen) {
    for (int64_t i = 0; i < steps; ++i) {
      const auto record = train_step(run);
      seen.insert(seen.end(), record.samples.begin(), record.samples.end());
      EXPECT_EQ(record.position, seen.size());
      EXPECT_EQ(record.tokens, seen.size() * 16);
    }
  }
  static void finish(train::Run& run, Samples& seen) {
    add_steps(run, run.schedule.max_steps - run.progress.step, seen);
  }
  // Every sample once in each of the epochs.
  static void expect_whole(const Samples& seen, const train::Run& run, uint64_t number) {
    const uint64_t size = run.data.loader->samples_per_epoch();
    ASSERT_EQ(seen.size(), number * size);
    Samples all(size);
    std::iota(all.begin(), all.end(), 0);
    for (uint64_t epoch = 0; epoch < number; ++epoch) {
      Samples found(seen.begin() + static_cast<ptrdiff_t>(epoch * size),
                    seen.begin() + static_cast<ptrdiff_t>((epoch + 1) * size));
      std::ranges::sort(found);
      EXPECT_EQ(found, all) << "epoch " << epoch;
    }
  }
  // A model whose length is not part of its weights.
  std::string llama() const {
    const fs::path model = folder / "llama";
    fs::create_directories(model);
    write_file_atomic(model / "config.json",
                      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "hidden_act": "silu", "attention_bias": false})");
    return model.string();
  }
  config::Settings of_llama(int64_t number) const {
    config::Settings s = epochs(number);
    s.model_name = llama();
    s.n_layer = s.n_head = s.n_embd = 0;
    return s;
  }
};

TEST_F(Epochs, TheLastStepHasWhatIsLeft) {
  for (const int64_t accumulation : {int64_t{1}, int64_t{3}}) {
    auto s = epochs(2);
    s.batch_size = 7;
    s.gradient_accumulation_steps = accumulation;
    const auto run = start(s);
    ASSERT_NE(2 * run->data.loader->samples_per_epoch() % samples_per_step(run->settings, 1), 0);
    Samples seen;
    finish(*run, seen);
    expect_whole(seen, *run, 2);
  }
}

// Rows without a sample change nothing: the step is that of a smaller batch.
TEST_F(Epochs, AShortStepIsAStepOfItsSamples) {
  const auto padded = start(epochs(1));
  Samples seen;
  add_steps(*padded, padded->schedule.max_steps - 1, seen);
  auto s = epochs(1);
  save(*padded, "run", false, nullptr);
  s.resume = "latest";
  s.batch_size =
      static_cast<int64_t>(samples_asked(padded->settings, *padded->data.train) - seen.size());
  ASSERT_LT(s.batch_size, 8);
  const auto exact = start(s);
  EXPECT_EQ(exact->schedule.max_steps, padded->schedule.max_steps);
  const auto a = train_step(*padded), b = train_step(*exact);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  EXPECT_NEAR(a.grad_norm / b.grad_norm, 1, 1e-5);
  EXPECT_EQ(a.samples, b.samples);
}

TEST_F(Epochs, AResumeWithOtherStepsSeesTheRest) {
  struct Change {
    int64_t batch, accumulation, epochs;
  };
  for (const Change c : {Change{16, 1, 2}, {4, 1, 1}, {3, 5, 3}, {100, 1, 2}}) {
    SCOPED_TRACE(str(c.batch, " x ", c.accumulation, ", ", c.epochs, " epochs"));
    fs::remove_all(folder / "checkpoints");
    auto s = epochs(1);
    const auto run = start(s);
    Samples seen;
    add_steps(*run, run->schedule.max_steps / 2, seen);
    save(*run, "run", false, nullptr);
    s.resume = "latest";
    s.batch_size = c.batch;
    s.gradient_accumulation_steps = c.accumulation;
    s.num_epochs = c.epochs;
    const auto resumed = start(s);
    finish(*resumed, seen);
    expect_whole(seen, *resumed, static_cast<uint64_t>(c.epochs));
  }
}

TEST_F(Epochs, AFinishedRunGoesOnWithTheNextEpochOrSaysThatNothingIsLeft) {
  auto s = epochs(1);
  const auto run = start(s);
  Samples seen;
  finish(*run, seen);
  save(*run, "run", false, nullptr);
  s.resume = "latest";
  s.batch_size = 16;
  const auto done = start(s);
  EXPECT_EQ(done->schedule.max_steps, done->progress.step);
  const auto warnings = warning_count();
  announce_epochs(*done);
  EXPECT_EQ(warning_count(), warnings + 1);
  s.num_epochs = 2;
  const auto resumed = start(s);
  finish(*resumed, seen);
  expect_whole(seen, *resumed, 2);
}

TEST_F(Epochs, AnotherLengthIsRefusedInTheMiddleOfAnEpoch) {
  auto s = of_llama(1);
  const auto run = start(s);
  Samples seen;
  add_steps(*run, 3, seen);
  save(*run, "run", false, nullptr);
  s.resume = "latest";
  s.max_seq_length = 24;
  expect_failure(ExitCode::kUsage, "wanted max_seq_length 16", [&] { start(s); });
  s.max_steps = 100;  // the same data in another order: no epoch was asked for, and yet
  s.num_epochs = 0;
  expect_failure(ExitCode::kUsage, "in the middle of an epoch", [&] { start(s); });
  s.max_seq_length = 16;
  EXPECT_NO_THROW(start(s));
}

TEST_F(Epochs, AnotherLengthIsConvertedBetweenEpochs) {
  auto s = of_llama(2);
  const auto run = start(s);
  Samples seen;
  finish(*run, seen);
  save(*run, "run", false, nullptr);
  s.resume = "latest";
  s.max_seq_length = 24;
  s.num_epochs = 3;
  const auto resumed = start(s);
  const uint64_t size = resumed->data.loader->samples_per_epoch();
  EXPECT_LT(size, run->data.loader->samples_per_epoch());
  EXPECT_EQ(resumed->progress.position.samples, 2 * size);
  Samples rest;
  while (resumed->progress.step < resumed->schedule.max_steps) {
    const auto record = train_step(*resumed);
    rest.insert(rest.end(), record.samples.begin(), record.samples.end());
  }
  expect_whole(rest, *resumed, 1);
}

TEST_F(Epochs, StepsThatWereAskedForStaySteps) {
  auto s = epochs(0);
  s.max_steps = 5;
  const auto run = start(s);
  EXPECT_EQ(samples_asked(run->settings, *run->data.train), 0);
  EXPECT_EQ(run->schedule.max_steps, 5);
  EXPECT_EQ(run->data.loader->end(), 0);
}

}  // namespace
}  // namespace octavo::train

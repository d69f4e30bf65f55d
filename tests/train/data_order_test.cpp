// The order of samples across checkpoints: a run keeps the one it began with.

#include "train/state/data_order.h"

#include "expect_failure.h"
#include "train/batching/auto_batch.h"
#include "train/random_run.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

TEST(DataOrder, GoesThroughACheckpoint) {
  const data::Order order{.block = 128, .window = 2, .step = 512, .run = 8};
  const Json extra = {{"data_order", order_json(order)}};
  EXPECT_EQ(saved_order(extra, "a.json"), order);
  EXPECT_TRUE(order_json({}).is_null());
  // Checkpoints from before there was a choice.
  EXPECT_TRUE(saved_order(Json::object(), "a.json").is_uniform());
}

TEST(DataOrder, IsRefusedWhenItIsDamagedOrNewer) {
  const auto with = [](const char* name, int64_t value) {
    Json extra = {{"data_order", order_json({.block = 4, .window = 2, .step = 6, .run = 3})}};
    extra["data_order"][name] = value;
    return extra;
  };
  const auto refuse = [](ExitCode code, const char* word, const Json& extra) {
    expect_failure(code, word, [&] { saved_order(extra, "a.json"); });
  };
  refuse(ExitCode::kUsage, "wanted version 2, found 3", with("version", 3));
  refuse(ExitCode::kDamaged, "block: wanted at least 1, found 0", with("block", 0));
  refuse(ExitCode::kDamaged, "multiple", with("run", 4));
  refuse(ExitCode::kDamaged, "2^30", with("window", int64_t{1} << 40));
  refuse(ExitCode::kDamaged, "data_order", {{"data_order", 7}});
}

struct LargeData : TrainTest {
  // Steps of 8 samples of data of 4 TB.
  std::unique_ptr<train::Run> large() const {
    auto s = settings();
    s.batch_size = 2;
    s.gradient_accumulation_steps = 4;
    auto run = start(s);
    run->data.train = std::make_shared<RandomTokens>(run->data.train->vocab_size());
    return run;
  }
  static std::vector<uint64_t> next_samples(const train::Run& run, int batches) {
    std::vector<uint64_t> samples;
    for (int i = 0; i < batches; ++i) {
      const data::Batch batch = run.data.loader->next();
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
    return samples;
  }
};

TEST_F(LargeData, BeginsInBlocksAndStaysThere) {
  const auto run = large();
  open_loader(run->settings, run->world, {}, run->data);
  const auto all = next_samples(*run, 20);
  const data::Position middle = run->data.loader->next().after;
  EXPECT_EQ(middle.order.lanes(), 8u);
  EXPECT_EQ(middle.order.step, 8u);
  // Resumed with another step, from what a checkpoint keeps.
  const data::Position saved{
      10, saved_order({{"data_order", order_json(middle.order)}}, "a checkpoint")};
  run->settings.batch_size = 5;
  open_loader(run->settings, run->world, {.position = saved}, run->data);
  EXPECT_EQ(next_samples(*run, 6), std::vector<uint64_t>(all.begin() + 10, all.begin() + 40));
}

TEST_F(LargeData, ContinuesAnOlderPositionInTheUniformOrder) {
  const auto run = large();
  open_loader(run->settings, run->world,
              {.position = {10, saved_order(Json::object(), "a checkpoint")}}, run->data);
  const auto& s = run->settings;
  const data::Sampler uniform(data::sample_count(*run->data.train, s.max_seq_length),
                              static_cast<uint64_t>(s.seed), true);
  const auto found = next_samples(*run, 10);
  for (uint64_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], uniform.at(10 + i));
  EXPECT_TRUE(run->data.loader->next().after.order.is_uniform());
}

}  // namespace
}  // namespace octavo::train

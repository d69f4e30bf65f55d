#include "plan/advice.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "base/error.h"
#include "config/rules.h"
#include "plan/forecast.h"

namespace octavo::plan {
namespace {

using config::Settings;
using config::ShardingMode;
using config::StateType;

bool says(const Advice& advice, const std::string& part) {
  for (const std::string& line : advice.lines)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

Settings lora_on_small_gpus(const char* model, int64_t batch, int64_t length) {
  Settings s;
  s.model_name = model;
  s.gpu = "rtx4090";
  s.lora_rank = 16;
  s.batch_size = batch;
  s.max_seq_length = length;
  return s;
}

// Half of the batch was all that was tried, and "more GPUs, or larger ones" the answer.
TEST(Advice, DividesTheBatchUntilItFits) {
  Settings s = lora_on_small_gpus("llama-2-7b", 16, 4096);
  s.gradient_accumulation_steps = 3;
  const Forecast f = forecast(s);
  ASSERT_FALSE(f.fits());
  EXPECT_FALSE(says(f.advice, "do not fit"));
  const Settings& then = f.advice.settings;
  EXPECT_LT(then.batch_size, 8);
  EXPECT_EQ(then.batch_size * then.gradient_accumulation_steps, 48);
  EXPECT_TRUE(says(f.advice, str("batch_size ", then.batch_size, ", gradient_accumulation_steps ",
                                 then.gradient_accumulation_steps)));
  EXPECT_TRUE(forecast(then).fits());
}

// With 10% of a small card free the allocator found no piece of 640 MB
// (tests/integration/plan_advice.py).
TEST(Advice, LeavesRoomForTensorsThatNeedOnePiece) {
  Settings s;
  s.model_name = "qwen2.5-0.5b";
  s.gpu = "rtx5060ti";
  s.batch_size = 16;
  s.max_seq_length = 2048;
  s.use_fp8 = true;
  const Forecast f = forecast(s), after = forecast(f.advice.settings);
  ASSERT_FALSE(f.fits());
  EXPECT_TRUE(has_room(after.memory(), after.memory_limit));
  s.gradient_checkpointing = true;
  const Forecast tight = forecast(s);
  EXPECT_TRUE(tight.fits());
  EXPECT_FALSE(has_room(tight.memory(), tight.memory_limit));
}

// A base in FP8 codes is whole on every rank: train refuses it beside fsdp_full.
TEST(Advice, NeverCombinesWhatTrainRefuses) {
  Settings s = lora_on_small_gpus("llama-3.1-70b", 1, 512);
  s.num_gpus = 4;
  const Forecast f = forecast(s);
  ASSERT_FALSE(f.fits());
  EXPECT_TRUE(says(f.advice, "fsdp_full"));
  EXPECT_FALSE(says(f.advice, "lora_base fp8"));
  s.lora_base = config::LoraBase::kFp8;
  EXPECT_FALSE(says(forecast(s).advice, "fsdp_full"));
}

// 200 settings: what is proposed is accepted by train's rules, saves what it says, and fits unless
// it says that it does not.
TEST(Advice, HoldsForRandomSettings) {
  std::mt19937 random(28);
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  const char* models[] = {"gpt2-xl",      "llama-3.2-1b", "llama-2-7b",
                          "llama-3.1-8b", "qwen2.5-14b",  "llama-3.1-70b"};
  const char* gpus[] = {"rtx4090", "l4", "a100_40gb", "h100", "b200", "rtx5060ti"};
  const ShardingMode modes[] = {ShardingMode::kNone,     ShardingMode::kDdp,
                                ShardingMode::kZero1,    ShardingMode::kZero2,
                                ShardingMode::kFsdpFull, ShardingMode::kHybrid};
  const StateType masters[] = {StateType::kFp32, StateType::kBf16};
  const StateType moments[] = {StateType::kFp32, StateType::kBf16, StateType::kFp8};
  const int64_t counts[] = {1, 1, 2, 8, 16}, batches[] = {1, 2, 3, 6, 8, 16, 64};
  const int64_t lengths[] = {512, 1024, 4096, 8192}, ranks[] = {0, 0, 8, 64};
  int proposed = 0, fitted = 0;
  for (int i = 0; i < 200; ++i) {
    Settings s;
    s.model_name = one_of(models);
    s.gpu = one_of(gpus);
    s.num_gpus = one_of(counts);
    s.sharding_mode = one_of(modes);
    s.batch_size = one_of(batches);
    s.max_seq_length = one_of(lengths);
    s.gradient_accumulation_steps = 1 + static_cast<int64_t>(random() % 3);
    s.use_fp8 = random() % 2 == 0;
    s.gradient_checkpointing = random() % 3 == 0;
    s.lora_rank = one_of(ranks);
    s.master_dtype = s.gradient_dtype = one_of(masters);
    s.moment_dtype = one_of(moments);
    s.auto_batch_size = random() % 8 == 0;
    const Forecast f = forecast(s);
    if (f.advice.lines.empty()) {
      EXPECT_TRUE(f.fits());
      continue;
    }
    Settings then = f.advice.settings;
    const Forecast after = forecast(then);
    const bool gives_up = says(f.advice, "do not fit");
    EXPECT_EQ(after.fits(), !gives_up) << i;
    EXPECT_EQ(f.batch * f.accumulation, after.batch * after.accumulation) << i;
    proposed += f.advice.lines.size() > (gives_up ? 1u : 0u);
    fitted += !gives_up;
    if (f.advice.lines.size() > (gives_up ? 1u : 0u)) {
      const std::string& line = f.advice.lines[f.advice.lines.size() - (gives_up ? 2 : 1)];
      char left[32];
      std::snprintf(left, sizeof left, ": %.1f GB", after.memory().total / 1e9);
      EXPECT_TRUE(line.ends_with(left)) << line << " against" << left;
      EXPECT_LT(after.memory().total, 0.97 * f.memory().total);
    }
    then.num_gpus = 1;
    EXPECT_TRUE(config::contradictions(then, config::reader::kTrain).empty())
        << config::contradictions(then, config::reader::kTrain).front();
  }
  EXPECT_GT(proposed, 60);
  EXPECT_GT(fitted, 40);
}

}  // namespace
}  // namespace octavo::plan

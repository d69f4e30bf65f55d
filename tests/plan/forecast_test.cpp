#include "plan/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/parse.h"
#include "expect_failure.h"
#include "plan/accuracy.h"
#include "plan/batch_size.h"
#include "plan/report.h"

namespace octavo::plan {
namespace {

config::Settings llama_8b_settings() {
  config::Settings settings;
  settings.model_name = "llama-3.1-8b";
  settings.batch_size = 2;
  settings.use_fp8 = true;
  return settings;
}

TEST(Forecast, SaysWhatToChangeUntilItFits) {
  const Forecast big = forecast(llama_8b_settings());
  EXPECT_FALSE(big.fits());
  ASSERT_FALSE(big.advice.lines.empty());
  EXPECT_EQ(big.advice.lines.back().find("do not fit"), std::string::npos);
  config::Settings settings = llama_8b_settings();
  settings.lora_rank = 16;
  EXPECT_TRUE(forecast(settings).fits());
  EXPECT_TRUE(forecast(settings).advice.lines.empty());
  settings = llama_8b_settings();
  settings.model_name = "llama-3.1-70b";
  settings.gpu = "rtx4090";
  const Forecast never = forecast(settings);
  EXPECT_NE(never.advice.lines.back().find("do not fit"), std::string::npos);
}

// The largest batch fits, and the next that would make the same step does not.
TEST(Forecast, AutoBatchIsTheLargestThatFits) {
  config::Settings settings;
  settings.model_name = "gpt2";
  settings.gpu = "h100";
  settings.auto_batch_size = true;
  const Forecast found = forecast(settings);
  EXPECT_TRUE(found.fits());
  EXPECT_GT(found.batch, 8);
  EXPECT_NE(text_of(found).find("the largest that fits"), std::string::npos);
  config::Settings given = settings;
  given.auto_batch_size = false;
  given.batch_size = found.batch;
  EXPECT_DOUBLE_EQ(forecast(given).memory().total, found.memory().total);
  ++given.batch_size;
  EXPECT_FALSE(forecast(given).fits());

  settings.max_batch_size = 16;
  EXPECT_EQ(forecast(settings).batch, 16);
  settings.max_batch_size = 100;
  settings.target_effective_batch_size = 512;
  settings.num_gpus = 4;  // 128 samples each, in passes of at most 100 that divide them
  EXPECT_EQ(forecast(settings).batch, 64);
  EXPECT_EQ(forecast(settings).accumulation, 2);
  settings.auto_batch_size = false;
  settings.batch_size = 8;
  EXPECT_EQ(forecast(settings).batch, 8);
  EXPECT_EQ(forecast(settings).accumulation, 16);
}

// A step of one pass keeps no sums of gradients: all samples at once may fit where half of them do
// not.
TEST(Forecast, AutoBatchFindsAStepOfOnePass) {
  config::Settings settings;
  settings.auto_batch_size = true;
  settings.target_effective_batch_size = 8;
  const auto bytes = [](const BatchChoice& tried) {
    return static_cast<double>(tried.batch) + (tried.accumulation > 1 ? 10 : 0);
  };
  const BatchChoice all = chosen_batch(settings, bytes, 9);
  EXPECT_EQ(all.batch, 8);
  EXPECT_EQ(all.accumulation, 1);
  EXPECT_EQ(all.why, "auto_batch_size: as large as it may be");
  EXPECT_EQ(chosen_batch(settings, bytes, 7).why, "auto_batch_size: not even this fits");
  settings.max_batch_size = 4;
  EXPECT_EQ(chosen_batch(settings, bytes, 12.5).batch, 2);
}

TEST(Forecast, AutoBatchThatFitsNowhereIsTheSmallest) {
  config::Settings settings = llama_8b_settings();
  settings.gpu = "rtx4090";
  settings.auto_batch_size = true;
  const Forecast found = forecast(settings);
  EXPECT_FALSE(found.fits());
  EXPECT_EQ(found.batch, 1);
  EXPECT_FALSE(found.advice.lines.empty());
}

TEST(Forecast, RecipesThatAGpuHasNot) {
  config::Settings settings = llama_8b_settings();
  settings.gpu = "a100";
  for (const RecipeForecast& recipe : forecast(settings).recipes) {
    EXPECT_EQ(recipe.refusal.empty(), recipe.recipe == kBf16);
    EXPECT_DOUBLE_EQ(recipe.gain, 1);
  }
  settings.gpu = "b200";
  settings.fp8_scenario = config::Fp8Scenario::kMxfp8;
  const Forecast b200 = forecast(settings);
  EXPECT_EQ(name_of(b200.chosen().recipe), "mxfp8");
  EXPECT_EQ(b200.chosen().refusal, "");
  EXPECT_GT(b200.chosen().gain, 1.1);
}

// mxfp8 on a GPU with other FP8 units: delayed runs (fp8::decide), so delayed is what it costs.
TEST(Forecast, Mxfp8OffBlackwellCostsAsDelayed) {
  config::Settings settings = llama_8b_settings();
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  const Forecast delayed = forecast(settings);
  settings.fp8_scenario = config::Fp8Scenario::kMxfp8;
  const Forecast mxfp8 = forecast(settings);
  ASSERT_EQ(name_of(mxfp8.chosen().recipe), "mxfp8");
  EXPECT_NE(mxfp8.chosen().refusal.find("falls back to delayed"), std::string::npos);
  EXPECT_GT(mxfp8.chosen().gain, 1.1);
  EXPECT_DOUBLE_EQ(mxfp8.chosen().time.total, delayed.chosen().time.total);
  EXPECT_DOUBLE_EQ(mxfp8.wanted_costs.hours, delayed.wanted_costs.hours);
  EXPECT_LT(mxfp8.wanted_costs.hours, mxfp8.bf16_costs.hours);
  EXPECT_DOUBLE_EQ(mxfp8.fp8_memory.total, delayed.fp8_memory.total);
  EXPECT_DOUBLE_EQ(mxfp8.traffic.total(), delayed.traffic.total());
  EXPECT_EQ(mxfp8.reasons.size(), delayed.reasons.size() + 1);
  EXPECT_NE(text_of(mxfp8).find("mxfp8 (delayed runs)"), std::string::npos);
}

// What programs report on these GPUs: torchao's PR 4002 has 178.35 GiB of a B200, and published
// runs of H100 took 79.3 GB (published.csv).
TEST(Forecast, UsableMemoryIsWhatCudaReportsLessTheContext) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  config::Settings settings = llama_8b_settings();
  settings.gpu = "b200";
  EXPECT_NEAR(forecast(settings).memory_limit, 177.3 * kGib, 0.2 * kGib);
  settings.gpu = "h100";
  EXPECT_GT(forecast(settings).memory_limit, 79.3e9);
  EXPECT_LT(forecast(settings).memory_limit, 79.18 * kGib);
  // Less than GiB of the name, and not much less.
  struct {
    const char* name;
    double sold;  // GiB
  } const some[] = {{"a100", 80}, {"rtx4090", 24}, {"rtx5090", 32}, {"l4", 24}, {"l40s", 48}};
  for (const auto& it : some) {
    EXPECT_LT(usable_bytes(wanted_gpu(it.name)), it.sold * kGib) << it.name;
    EXPECT_GT(usable_bytes(wanted_gpu(it.name)), 0.87 * it.sold * kGib) << it.name;
  }
  // Was 80 MB over what a B200 was said to have, with 19 GB to spare.
  settings.gpu = "b200";
  settings.use_fp8 = false;
  settings.gradient_checkpointing = true;
  settings.batch_size = 1;
  settings.max_seq_length = 32768;
  EXPECT_TRUE(forecast(settings).fits());
}

TEST(Forecast, AdaptersAreAllThatLoraSends) {
  config::Settings settings = llama_8b_settings();
  settings.use_fp8 = false;
  settings.num_gpus = 8;
  settings.lora_rank = 8;
  using enum config::ShardingMode;
  const double adapters = 20'971'520, whole = 2 * 7.0 / 8 * 4 * adapters;
  for (const config::ShardingMode mode : {kDdp, kZero1, kZero2}) {
    settings.sharding_mode = mode;
    EXPECT_DOUBLE_EQ(forecast(settings).traffic.reduce, whole);
    EXPECT_EQ(forecast(settings).traffic.gather, 0);
  }
  settings.sharding_mode = kFsdpFull;  // the frozen weights still come and go
  const Traffic adapted = forecast(settings).traffic;
  EXPECT_DOUBLE_EQ(adapted.reduce, whole);
  settings.lora_rank = 0;
  EXPECT_DOUBLE_EQ(adapted.gather, forecast(settings).traffic.gather);
}

TEST(Forecast, YoungAndDaly) {
  const Failures f = failures(100, 60, 600);
  EXPECT_NEAR(f.checkpoint_interval, std::sqrt(2.0 * 60 * 360000), 1e-9);
  // A checkpoint of 60 s, half an interval again and a restart for each failure.
  EXPECT_NEAR(f.goodput,
              1 / (1 + 60 / f.checkpoint_interval + (f.checkpoint_interval / 2 + 600) / 360000),
              1e-12);
  EXPECT_LT(failures(0.5, 60, 600).goodput, 0.8);
  EXPECT_GT(failures(1e9, 0, 0).goodput, 0.999);
}

TEST(Forecast, MoneyFollowsTokensAndPrice) {
  config::Settings settings = llama_8b_settings();
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  settings.token_budget = 10'000'000'000;
  settings.gpu_price = 2.5;
  const Forecast f = forecast(settings);
  const double expected = 1e10 / (f.chosen().time.tokens_per_s * 3600 * f.failures.goodput);
  EXPECT_NEAR(f.wanted_costs.gpu_hours, expected, 1e-6 * expected);
  EXPECT_NEAR(f.wanted_costs.money, 2.5 * expected, 1e-6 * expected);
  EXPECT_NEAR(f.wanted_costs.hours * 8, f.wanted_costs.gpu_hours, 1e-9 * expected);
  EXPECT_LT(f.wanted_costs.money, f.bf16_costs.money);
  char line[64];
  std::snprintf(line, sizeof line, " GPU-hours, cost %.0f\n", f.bf16_costs.money);
  EXPECT_NE(text_of(f).find(line), std::string::npos) << line << text_of(f);
}

TEST(Forecast, CostsAreOfTheStepsOfAnotherProgramsFile) {
  config::Settings settings = llama_8b_settings();
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  const OtherProgram other{.shape = {}, .name = "torchtitan", .steps = 1000};
  const Forecast f = forecast(settings, other);
  const double step = 8.0 * static_cast<double>(f.batch * f.accumulation * f.length);
  EXPECT_EQ(f.bf16_costs.tokens, 1000 * step);
  EXPECT_NE(text_of(f).find("time and cost of 1000 steps"), std::string::npos) << text_of(f);
  settings.token_budget = 123'000;  // said by hand, and wins
  EXPECT_EQ(forecast(settings, other).bf16_costs.tokens, 123'000);
  EXPECT_EQ(text_of(forecast(settings, other)).find("of 1000 steps"), std::string::npos);
}

TEST(Forecast, EveryOutputSaysForecastAndHowWrong) {
  config::Settings settings = llama_8b_settings();
  Forecast f = forecast(settings);
  const std::string text = text_of(f);
  EXPECT_EQ(text.find("forecast"), 0u);
  EXPECT_NE(text.find("within 8%"), std::string::npos);
  // The pooled median says little of one stack and GPU: theirs stand beside it, or that there is
  // none.
  EXPECT_NE(text.find("such programs: 253, half within 10%"), std::string::npos);
  EXPECT_NE(text.find("of H100 SXM 80GB: 346, half within 11%"), std::string::npos);
  config::Settings other = settings;
  other.gpu = "l4";
  EXPECT_NE(text_of(forecast(other)).find("of L4: none\n"), std::string::npos);
  EXPECT_NE(text.find("does NOT fit"), std::string::npos);
  const auto json = json_of(f);
  EXPECT_EQ(json.at("forecast"), true);
  EXPECT_EQ(json.at("errors").at("median_tokens_per_s"), kMedianError);
  f.shape.name = "<script>&";
  const std::string picture = picture_of(f);
  EXPECT_NE(picture.find("A forecast"), std::string::npos);
  EXPECT_EQ(picture.find("<script>"), std::string::npos);
  EXPECT_NE(picture.find("what a run can use of"), std::string::npos);
  EXPECT_NE(picture.find("GB: does not fit"), std::string::npos);
}

TEST(Forecast, AdaptersOnAttentionAloneCostLess) {
  config::Settings settings = llama_8b_settings();
  settings.lora_rank = 16;
  const Forecast all = forecast(settings);
  settings.lora_target_modules = {"q_proj", "v_proj"};
  const Forecast some = forecast(settings);
  EXPECT_LT(some.chosen().time.adapters, 0.6 * all.chosen().time.adapters);
  EXPECT_LT(some.bf16_memory.activations, all.bf16_memory.activations);
  EXPECT_NE(text_of(some).find("on q, k, v and o"), std::string::npos);
}

// One file may describe a run and its forecast; train must not pass over what it cannot do.
TEST(Forecast, TrainRefusesSeveralGpus) {
  expect_failure(ExitCode::kUsage, "num_gpus",
                 [] { config::parse_text("num_gpus: 8", "run.yaml", config::kTrainArguments); });
  const config::Arguments plan{"plan", config::reader::kPlan};
  EXPECT_EQ(config::parse_text("num_gpus: 8", "run.yaml", plan).settings.num_gpus, 8);
}

// The most that could be gained left out what the collectives gain: 1.32x of at most 1.16x.
TEST(Forecast, ReasonsCountWeightsThatTravelAsCodes) {
  config::Settings settings = llama_8b_settings();
  settings.gpu = "l40s";
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  settings.max_seq_length = 2048;
  const auto find = [](const Forecast& f, const std::string& part) -> std::string {
    for (const std::string& reason : f.reasons)
      if (reason.find(part) != std::string::npos) return reason;
    return "";
  };
  const Forecast coded = forecast(settings);
  EXPECT_LT(coded.chosen().time.collectives, 0.9 * coded.recipes.front().time.collectives);
  EXPECT_NE(find(coded, "whose weights travel as codes"), "");
  EXPECT_EQ(find(coded, "as long in both"), "");
  const std::string most = find(coded, "they and collectives could gain is ");
  ASSERT_NE(most, "");
  EXPECT_GE(std::stod(most.substr(most.rfind(" is ") + 4)), coded.chosen().gain - 0.005) << most;
  settings.fp8_all_gather = false;
  const Forecast plain = forecast(settings);
  EXPECT_NE(find(plain, "as long in both"), "");
  EXPECT_EQ(find(forecast(llama_8b_settings()), "collectives"), "");  // one GPU has none
  EXPECT_LT(plain.chosen().gain, coded.chosen().gain);
}

// train makes codes of a weight for each GEMM when it recomputes and weights are whole
// (train::weight_copies): three times 5 bytes a weight and micro-batch, where one pass a step was
// counted, and none for frozen weights.
TEST(Forecast, RecomputationQuantizesWeightsForEachGemm) {
  const double bandwidth = 3.35e12 * Calibration::fitted().of("memory");
  const double pass = 5 * 6'979'321'856.0 / bandwidth;  // the blocks' matrices of Llama 3.1 8B
  const auto quantize = [](const config::Settings& s) {
    return forecast(s).chosen().time.quantize;
  };
  for (const int64_t rank : {0, 8}) {
    config::Settings settings = llama_8b_settings();
    settings.lora_rank = rank;
    settings.gradient_accumulation_steps = 8;
    settings.gradient_checkpointing = true;
    const double with = quantize(settings);
    // Other programs are counted as before: once a step, frozen weights once a run.
    const OtherProgram other{.shape = {}, .name = "torchtitan"};
    const double once = forecast(settings, other).chosen().time.quantize;
    EXPECT_NEAR(with - once, (8 * 3 - (rank == 0 ? 1 : 0)) * pass, 0.01 * pass) << rank;
  }
  // Whole weights come with their codes: only the transposed ones are made, twice.
  config::Settings settings = llama_8b_settings();
  settings.gradient_checkpointing = true;
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  const double coded = quantize(settings);
  settings.fp8_all_gather = false;
  EXPECT_NEAR(quantize(settings) - coded, 2 * (pass - pass / 8 - pass * 2 / 5), 0.01 * pass);
}

// Layers that fp8_skip leaves in BF16 cost what BF16 costs, in every recipe.
TEST(Forecast, Fp8SkipCountsInEveryRecipe) {
  EXPECT_NE(config::find_key("fp8_skip")->readers & config::reader::kPlan, 0u);
  config::Settings settings = llama_8b_settings();
  settings.gpu = "b200";
  settings.num_gpus = 8;
  settings.sharding_mode = config::ShardingMode::kFsdpFull;
  const Forecast whole = forecast(settings);
  settings.fp8_skip = {"first:16"};  // of 32 blocks
  const Forecast half = forecast(settings);
  const double bf16 = whole.recipes.front().time.gemms;
  for (size_t i = 1; i < whole.recipes.size(); ++i) {
    if (!whole.recipes[i].runs) continue;
    SCOPED_TRACE(name_of(whole.recipes[i].recipe));
    const StepTime &all = whole.recipes[i].time, &some = half.recipes[i].time;
    EXPECT_NEAR(some.gemms, (all.gemms + bf16) / 2, 1e-9 * bf16);
    EXPECT_NEAR(some.quantize, all.quantize / 2, 1e-9 * all.quantize);
  }
  EXPECT_NEAR(half.fp8_memory.fp8_weights, whole.fp8_memory.fp8_weights / 2, 1);
  EXPECT_GT(half.fp8_memory.activations, whole.fp8_memory.activations);
  EXPECT_GT(half.traffic.gather, whole.traffic.gather);
  const auto says_skip = [](const std::string& line) {
    return line.starts_with("fp8_skip leaves 50% of the blocks' GEMMs");
  };
  EXPECT_EQ(std::ranges::count_if(half.reasons, says_skip), 1);
  EXPECT_EQ(std::ranges::count_if(whole.reasons, says_skip), 0);

  settings.fp8_skip = {"*.down_proj"};  // a third of the MLP's weights
  const double down = forecast(settings).chosen().time.gemms;
  EXPECT_GT(down, whole.chosen().time.gemms);
  EXPECT_LT(down, half.chosen().time.gemms);
  settings.fp8_skip = {"*"};
  EXPECT_NEAR(forecast(settings).chosen().time.gemms, bf16, 1e-9 * bf16);
}

TEST(Forecast, ReasonsNameWhatTakesTheGain) {
  const auto holds = [](const Forecast& f, const std::string& part) {
    return std::any_of(f.reasons.begin(), f.reasons.end(), [&](const std::string& reason) {
      return reason.find(part) != std::string::npos;
    });
  };
  config::Settings settings = llama_8b_settings();
  EXPECT_FALSE(holds(forecast(settings), "LoRA"));
  settings.lora_rank = 32;
  EXPECT_TRUE(holds(forecast(settings), "LoRA adapters"));
  settings = llama_8b_settings();
  settings.max_seq_length = 32768;
  EXPECT_TRUE(holds(forecast(settings), "attention stays"));
  settings = llama_8b_settings();
  settings.model_name = "qwen2.5-0.5b";
  EXPECT_TRUE(holds(forecast(settings), "LM head"));
}

}  // namespace
}  // namespace octavo::plan

#include "plan/step_time.h"

#include <gtest/gtest.h>

#include "expect_failure.h"
#include "named_recipe.h"

namespace octavo::plan {
namespace {

Workload llama_8b_work() {
  config::Settings settings;
  settings.model_name = "llama-3.1-8b";
  Workload work;
  work.shape = shape_of(settings);
  work.gpu = &wanted_gpu("h100");
  work.length = 4096;
  return work;
}

double speed(const Workload& work) {
  return step_time(work, Calibration::fitted()).tokens_per_s;
}

TEST(StepTime, PartsAddUpToTheWhole) {
  Workload work = llama_8b_work();
  work.gpus = 64, work.sharding = Sharding::kFull, work.lora_rank = 16;
  for (const fp8::Recipe recipe : fp8::kRecipes) {
    work.recipe = recipe;
    const StepTime t = step_time(work, Calibration::fitted());
    EXPECT_NEAR(t.total,
                t.gemms + t.adapters + t.head + t.attention + t.elementwise + t.quantize +
                    t.optimizer + t.collectives + t.host,
                1e-12);
    EXPECT_NEAR(t.tokens_per_s, 4096 / t.total, 1e-6);
    EXPECT_EQ(t.quantize > 0, is_native(*work.gpu, recipe)) << name_of(recipe);
  }
}

// Six operations for each weight that a token goes through, and attention's.
TEST(StepTime, WorkOfExpertsIsThatOfTheActiveOnes) {
  Workload work = llama_8b_work();
  config::Settings settings;
  settings.model_name = "qwen3-30b-a3b";
  work.shape = shape_of(settings);
  const double tokens = 4096, embedding = 151936.0 * 2048;
  const double weights = static_cast<double>(active_parameters(work.shape)) - embedding -
                         static_cast<double>(vector_parameters(work.shape));
  const double attention = 48.0 * 6 * tokens * 32 * 128;
  EXPECT_NEAR(step_time(work, Calibration::fitted()).flops / tokens, 6 * weights + attention, 1e4);
  // They are loaded all the same: a model of the active size alone would be faster.
  const double whole = speed(work);
  work.shape.experts = work.shape.active_experts;
  EXPECT_GT(speed(work), 1.2 * whole);
}

TEST(StepTime, NeverFasterThanTheHardware) {
  for (const Gpu& gpu : gpus()) {
    Workload work = llama_8b_work();
    work.gpu = &gpu;
    const StepTime t = step_time(work, Calibration::fitted());
    EXPECT_LT(t.flops / t.total, gpu.bf16_tflops * 1e12) << gpu.name;
    EXPECT_GT(t.flops / t.total, 0.15 * gpu.bf16_tflops * 1e12) << gpu.name;
  }
}

TEST(StepTime, WhatMakesItSlower) {
  Workload work = llama_8b_work();
  const double plain = speed(work);
  work.recompute = Recompute::kFull;
  EXPECT_LT(speed(work), 0.85 * plain);
  work = llama_8b_work();
  work.length = 32768;
  EXPECT_LT(speed(work), 0.75 * plain);
  work = llama_8b_work();
  work.gpus = 512, work.sharding = Sharding::kFull;
  EXPECT_LT(speed(work), plain * 1.1);
  work = llama_8b_work();
  work.length = 64;  // nothing fills the GPU
  EXPECT_LT(speed(work), 0.4 * plain);
}

TEST(StepTime, Fp8PaysForLargeModelsAndLessForAdapters) {
  const auto gain = [](Workload work) {
    const double high = speed(work);
    work.recipe = fp8::kDefaultRecipe;
    return speed(work) / high;
  };
  Workload work = llama_8b_work();
  work.accumulation = 8;
  const double full = gain(work);
  EXPECT_GT(full, 1.25);
  EXPECT_LT(full, 1.7);
  work.lora_rank = 16;
  EXPECT_LT(gain(work), full - 0.05);
  work = llama_8b_work();
  work.gpu = &wanted_gpu("a100");
  EXPECT_DOUBLE_EQ(gain(work), 1);
}

TEST(StepTime, GemmsWasteTilesAndWaves) {
  const Gpu& gpu = wanted_gpu("h100");
  const Calibration& c = Calibration::fitted();
  const double good = gemm_seconds(gpu, c, 8192, 8192, 8192, false);
  EXPECT_NEAR(2 * 8192.0 * 8192 * 8192 / good / (gpu.bf16_tflops * 1e12), c.of("hopper.bf16"), 0.1);
  EXPECT_LT(gemm_seconds(gpu, c, 8192, 8192, 8192, true), 0.6 * good);
  // 132 tiles are one wave; one row more is a second one. A rank of 8 costs what 64 costs.
  EXPECT_GT(gemm_seconds(gpu, c, 256 * 66 + 1, 256, 8192, false),
            1.05 * gemm_seconds(gpu, c, 256 * 66, 256, 8192, false));
  EXPECT_NEAR(gemm_seconds(gpu, c, 8192, 8, 8192, false),
              gemm_seconds(gpu, c, 8192, 64, 8192, false), 3e-6);
}

// Half the time of FP8 where GEMMs are large, never less than the data sheet allows; no figure for
// GPUs that do not train by it.
TEST(StepTime, FourBits) {
  const Calibration& c = Calibration::fitted();
  for (const char* name : {"b200", "b300", "gb200", "gb300"}) {
    const Gpu& gpu = wanted_gpu(name);
    EXPECT_TRUE(is_native(gpu, named_recipe("nvfp4")));
    EXPECT_GE(gpu.fp4_tflops, 2 * gpu.fp8_tflops);
    const double fp8 = gemm_seconds(gpu, c, 16384, 16384, 16384, GemmType::kReadsFp8),
                 fp4 = gemm_seconds(gpu, c, 16384, 16384, 16384, GemmType::kReadsFp4);
    EXPECT_NEAR(fp8 / fp4, gpu.fp4_tflops / gpu.fp8_tflops, 0.1) << name;
    EXPECT_GT(fp4, 2 * 16384.0 * 16384 * 16384 / (gpu.fp4_tflops * 1e12));
  }
  for (const char* name : {"h100", "rtx5090", "a100"})
    EXPECT_FALSE(is_native(wanted_gpu(name), named_recipe("nvfp4"))) << name;
  // Blocks that stay in BF16 cost what BF16 costs.
  Workload work = llama_8b_work();
  work.gpu = &wanted_gpu("b200");
  const auto gemms = [&](RecipeOrBf16 recipe, double share) {
    work.recipe = recipe;
    work.fp8_shares.assign(4, share);
    return step_time(work, c).gemms;
  };
  const double bf16 = gemms(kBf16, 1), all = gemms(named_recipe("nvfp4"), 1);
  EXPECT_LT(all, 0.4 * bf16);
  for (const char* recipe : {"nvfp4", "mxfp8"})
    EXPECT_NEAR(gemms(named_recipe(recipe), 0.75),
                0.75 * gemms(named_recipe(recipe), 1) + 0.25 * bf16, 1e-9);
}

TEST(StepTime, NamesAreChecked) {
  expect_failure(ExitCode::kUsage, "rtx4090", [] { wanted_gpu("h1000"); });
  expect_failure(ExitCode::kUsage, "nobody.passes",
                 [] { Calibration::fitted().of("nobody.passes"); });
}

}  // namespace
}  // namespace octavo::plan

#include "plan/model_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "plan/collectives.h"

namespace octavo::plan {
namespace {

Workload llama_8b(const char* gpu = "h100") {
  config::Settings settings;
  settings.model_name = "llama-3.1-8b";
  Workload work;
  work.shape = shape_of(settings);
  work.gpu = &wanted_gpu(gpu);
  work.length = 8192;
  return work;
}

// 1F1B: m micro-batches on p stages take m + p - 1 times as long as one on one stage; in v parts
// each, m + (p - 1) / v (Narayanan et al. 2021, section 2.2).
TEST(Pipeline, FillsAndDrains) {
  Workload work = llama_8b();
  work.accumulation = 16;
  EXPECT_DOUBLE_EQ(pipeline_wait(work, 1, 0), 0);
  for (const int64_t stages : {2, 4, 8})
    for (const int64_t parts : {1, 2, 4}) {
      work.split.pipeline = stages, work.split.parts = parts;
      const double bubble = static_cast<double>(stages - 1) / static_cast<double>(parts) / 16;
      EXPECT_NEAR(pipeline_wait(work, 3, 0), 3 * bubble, 1e-12) << stages << " " << parts;
    }
}

// Of 32 layers on four stages, each has 8. A head as long as four layers makes the last one as
// slow as 12; on average a stage has 9. All wait for it in each of 16 micro-batches, and 3 more.
TEST(Pipeline, WaitsForTheStageWithTheHead) {
  Workload work = llama_8b();
  work.accumulation = 16;
  work.split.pipeline = 4;
  const double layer = 0.01;
  EXPECT_NEAR(pipeline_wait(work, 16 * 8 * layer, 16 * 1 * layer), (16 * (12 - 9) + 3 * 12) * layer,
              1e-12);
}

// 126 layers on 8 stages: 15 at the ends, 16 between. A head of one layer leaves all equal: 16.
TEST(Pipeline, EndsHaveALayerLess) {
  Workload work = llama_8b();
  work.shape.layers = 126;
  work.accumulation = 8;
  work.split.pipeline = 8, work.split.parts = 7;
  const double layer = 0.01;
  EXPECT_NEAR(pipeline_wait(work, 8 * 126.0 / 8 * layer, 8 * 1.0 / 8 * layer),
              (8 * (16 - 127.0 / 8) + 16) * layer, 1e-12);
}

// 4,096 values of 2 bytes for each of 1,000 tokens; three quarters of them are the others', and
// ten collectives bring them; fourteen with the forward pass again.
TEST(TensorParallel, SendsActivationsTenTimes) {
  Workload work = llama_8b();
  work.split.tensor = 4;
  EXPECT_DOUBLE_EQ(tensor_bytes(work, 1000, 0), 1000.0 * 4096 * 2 * 3 / 4 * 10);
  EXPECT_DOUBLE_EQ(tensor_bytes(work, 1000, 1), 1000.0 * 4096 * 2 * 3 / 4 * 14);
  work.split.tensor = 1;
  EXPECT_DOUBLE_EQ(tensor_bytes(work, 1000, 0), 0);
}

// Keys and values are 2 x 8 heads of 128 in 2 bytes; a quarter on each GPU with tensor parallelism.
// The other GPU's come by twice, and their gradients once.
TEST(ContextParallel, SendsKeysAndValues) {
  Workload work = llama_8b();
  work.split.context = 2;
  EXPECT_DOUBLE_EQ(context_bytes(work, 1000, 0), 1000.0 * 2 * 8 * 128 * 2 * 3);
  work.split.tensor = 4, work.split.context = 4;
  EXPECT_DOUBLE_EQ(context_bytes(work, 1000, 1), 1000.0 * 2 * 8 * 128 * 2 / 4 * 3 * 4);
}

// Of the wire's time, what is not hidden, and what slows that which hides it.
TEST(ModelParallel, TakesTheLinksItHas) {
  Workload work = llama_8b();
  work.gpus = 16;
  const Calibration& c = Calibration::fitted();
  const Links links = links_of(*work.gpu, c);
  const double seen = 1 - c.of("overlap") + c.of("overlap") * c.of("contention");
  const StepTime none;
  EXPECT_DOUBLE_EQ(model_parallel_time(work, c, none, 4096, 0), 0);
  work.split.tensor = 8;
  const double tensor = 32 * tensor_bytes(work, 4096, 0) / links.inside;
  EXPECT_NEAR(model_parallel_time(work, c, none, 4096, 0), seen * tensor, 1e-12);
  // Eight GPUs of the node are taken: keys come by the adapter of each.
  work.split.context = 2;
  const double keys = 32 * context_bytes(work, 4096, 0) / links.adapter;
  EXPECT_NEAR(model_parallel_time(work, c, none, 4096, 0), seen * (tensor + keys), 1e-12);
  work.split.tensor = 4;
  const double near =
      32 * (tensor_bytes(work, 4096, 0) + context_bytes(work, 4096, 0)) / links.inside;
  EXPECT_NEAR(model_parallel_time(work, c, none, 4096, 0), seen * near, 1e-12);
}

// Cutting a model saves memory, not time: per GPU a step of as many tokens is slower.
TEST(ModelParallel, IsNeverFaster) {
  Workload work = llama_8b();
  work.gpus = 8, work.sharding = Sharding::kZero1, work.accumulation = 64;
  const Calibration& c = Calibration::fitted();
  const double alone = step_time(work, c).tokens_per_s;
  for (int64_t ModelParallel::*part :
       {&ModelParallel::tensor, &ModelParallel::pipeline, &ModelParallel::context}) {
    Workload cut = work;
    cut.split.*part = 8;
    const double speed = step_time(cut, c).tokens_per_s;
    EXPECT_LT(speed, alone);
    EXPECT_GT(speed, alone / 4);
  }
}

// Which of the constants are fitted, and that every family and stack has what it needs.
TEST(Calibration, IsThirtyConstantsForAllFamiliesAndStacks) {
  const Calibration& c = Calibration::fitted();
  EXPECT_LE(c.values().size(), 30u);
  // Of the data sheet's peak; GeForce clocks itself above it, and attention is not cut there.
  for (const Gpu& gpu : gpus()) {
    const std::string family(gpu.family);
    for (const char* what : {".bf16", ".fp8", ".attention"}) EXPECT_GT(c.of(family + what), 0.1);
    EXPECT_LT(c.of(family + ".bf16"), 1.2) << family;
    EXPECT_LT(c.of(family + ".fp8"), 1.2) << family;
    EXPECT_LT(c.of(family + ".attention"), 2) << family;
  }
  for (const char* stack : {"native", "fused", "compiled", "eager", "foundry", "hf", "xla"})
    for (const char* what :
         {".passes", ".logits", ".quantize", ".host", ".overlap", ".contention", ".selective"})
      EXPECT_GT(c.of(std::string(stack) + what), 0) << stack << what;
  EXPECT_DOUBLE_EQ(c.of("fused.quantize"), c.of("quantize") * c.of("fused.passes"));
  EXPECT_DOUBLE_EQ(c.of("hopper.fp8"), c.of("hopper.bf16") * c.of("fp8_share"));
}

// Large GEMMs are bound by power: 500 W of 700, and GB300's 1400 W of GB200's 1200.
TEST(Calibration, RatesFollowPower) {
  const Calibration& c = Calibration::fitted();
  EXPECT_DOUBLE_EQ(c.of("hopper_500w.bf16"), c.of("hopper.bf16") * 5 / 7);
  EXPECT_DOUBLE_EQ(c.of("hopper_500w.fp8"), c.of("hopper.fp8") * 5 / 7);
  EXPECT_DOUBLE_EQ(c.of("blackwell_ultra.bf16"), c.of("blackwell.bf16") * 7 / 6);
}

double attention_of(const char* gpu, std::string_view stack, int64_t head = 128) {
  Workload work = llama_8b(gpu);
  work.stack = stack;
  work.shape.heads = 4096 / head, work.shape.head_dim = head;
  return step_time(work, Calibration::fitted()).attention;
}

// Kernels of Ampere are too slow on Hopper for power to bound them: flash2 of the tuned ones' rate
// at 700 W and at 500. The tuned ones lose two sevenths.
TEST(Attention, OldKernelsAreNotBoundByPower) {
  const double peaks = 989.4 / 989;
  EXPECT_NEAR(attention_of("h100_500w", "fused") / attention_of("h100", "fused"), 1.4 * peaks,
              1e-9);
  const double slower = attention_of("h100_500w", "compiled") / attention_of("h100", "compiled");
  EXPECT_GE(slower, peaks - 1e-9);
  EXPECT_LE(slower, 1.1);
}

// Blackwell's multiprocessors run Hopper's instructions no faster than Hopper's do: 2,250 TFLOP/s
// of 148 are 15.2 each, twice an H100's 7.5.
TEST(Attention, OldKernelsHaveHalfOfBlackwell) {
  const Calibration& c = Calibration::fitted();
  const double tuned = attention_of("b200", "fused");
  EXPECT_NEAR(tuned / attention_of("b200", "compiled"), c.of("flash2") / 2, 1e-9);
  // An RTX 5090 has Ampere's kind of instruction and no other.
  EXPECT_NEAR(attention_of("rtx5090", "compiled"), attention_of("rtx5090", "fused"), 1e-12);
}

// As many values in heads of 64: 64 / 80 of the rate against 128 / 144.
TEST(Attention, SmallHeadsAreSlower) {
  EXPECT_NEAR(attention_of("h100", "fused", 64) / attention_of("h100", "fused"),
              (128.0 / 144) / (64.0 / 80), 1e-9);
}

}  // namespace
}  // namespace octavo::plan

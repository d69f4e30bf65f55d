#include "plan/memory.h"

#include <gtest/gtest.h>

namespace octavo::plan {
namespace {

MemoryWork llama_8b_memory() {
  config::Settings settings;
  settings.model_name = "llama-3.1-8b";
  settings.batch_size = 2;
  return memory_work(settings, shape_of(settings));
}

// tests/conformance/plan_memory.py holds the totals against a real allocator; this holds the parts.
TEST(PlanMemory, PartsAddUpToThePeak) {
  for (bool fp8 : {false, true})
    for (bool recompute : {false, true})
      for (int64_t rank : {0, 16}) {
        MemoryWork work = llama_8b_memory();
        work.fp8 = fp8, work.recompute = recompute, work.lora_rank = rank;
        const Memory m = memory(work);
        EXPECT_NEAR(m.total,
                    m.weights + m.masters + m.fp8_weights + m.scales + m.gradients + m.moments +
                        m.activations + m.logits + m.buffers + m.fragmentation,
                    1e-3 * m.total);
      }
}

TEST(PlanMemory, EighteenBytesOrSixAParameter) {
  const double parameters = 8030261248;
  const Memory m = memory(llama_8b_memory());
  EXPECT_NEAR(m.weights + m.masters + m.gradients + m.moments, 18 * parameters, 0.001 * parameters);
  MemoryWork low = llama_8b_memory();
  low.master = low.gradients = config::StateType::kBf16;
  low.moments = config::StateType::kFp8;
  low.recompute = true;
  const Memory l = memory(low);
  EXPECT_NEAR(l.weights + l.gradients + l.moments, 6 * parameters, 0.01 * parameters);
  // The run on the fake CUDA device took 49.7 GB.
  EXPECT_NEAR(l.total, 49.7e9, 1e9);
}

// All experts are in memory; activations are of those that a token goes through.
TEST(PlanMemory, OfExperts) {
  config::Settings settings;
  settings.model_name = "qwen3-30b-a3b";
  MemoryWork work = memory_work(settings, shape_of(settings));
  const double all = static_cast<double>(parameters(work.shape));
  const Memory m = memory(work);
  EXPECT_NEAR(m.weights + m.masters + m.gradients + m.moments, 18 * all, 0.001 * all);
  MemoryWork twice = work;
  twice.shape.experts *= 2;
  EXPECT_GT(memory(twice).weights, 1.9 * m.weights);
  EXPECT_LT(memory(twice).activations, 1.05 * m.activations);
  twice = work;
  twice.shape.active_experts *= 2;
  EXPECT_EQ(memory(twice).weights, m.weights);
  EXPECT_GT(memory(twice).activations, 1.5 * m.activations);
}

TEST(PlanMemory, WhatFp8AddsAndSaves) {
  MemoryWork work = llama_8b_memory();
  const Memory bf16 = memory(work);
  work.fp8 = true;
  const Memory fp8 = memory(work);
  EXPECT_NEAR(fp8.fp8_weights, 2 * 6.98e9, 0.1e9);  // two codes a weight
  work.capability = 100;                            // no transposed copy of codes with one scale
  EXPECT_NEAR(memory(work).fp8_weights, 6.98e9, 0.1e9);
  work.capability = 90;
  EXPECT_LT(fp8.activations, bf16.activations);
  work.recompute = true;
  EXPECT_EQ(memory(work).fp8_weights, 0);  // made for each GEMM
}

TEST(PlanMemory, ShardingDividesWhatItSays) {
  MemoryWork work = llama_8b_memory();
  work.gpus = 8;
  const Memory none = memory(work);
  work.sharding = Sharding::kZero1;
  const Memory zero1 = memory(work);
  EXPECT_NEAR(zero1.moments, none.moments / 8, 1);
  EXPECT_EQ(zero1.gradients, none.gradients);
  work.sharding = Sharding::kZero2;
  EXPECT_NEAR(memory(work).gradients, none.gradients / 8, 1);
  work.sharding = Sharding::kFull;
  const Memory full = memory(work);
  EXPECT_NEAR(full.weights, none.weights / 8, 1);
  // None of it is shared; the moments that are fullest differ by the last norm's tensors.
  EXPECT_NEAR(full.activations, none.activations, 0.01 * none.activations);
  // Each keeps the codes of its rows beside them, one byte each; without fp8_all_gather none.
  work.fp8 = true;
  EXPECT_NEAR(memory(work).fp8_weights, 6.98e9 / 8, 0.01e9);
  work.fp8_gather = false;
  EXPECT_EQ(memory(work).fp8_weights, 0);
  work.fp8 = false;
  work.fp8_gather = true;
  // hybrid: a node's GPUs share, however many nodes there are.
  work.gpus = 64;
  EXPECT_LT(memory(work).total, full.total);
  work.shard_group = 8;
  EXPECT_EQ(memory(work).total, full.total);
}

// While the loss is computed the head's gradient is there once; a copy to send is made when it is
// complete. At the end of the pass there are both.
TEST(PlanMemory, TheHeadsGradientTravelsWhenItIsComplete) {
  config::Settings settings;
  settings.model_name = "llama-3.2-1b";
  settings.batch_size = 2;
  settings.max_seq_length = 2048;
  MemoryWork work = memory_work(settings, shape_of(settings));
  work.gpus = 4;
  work.sharding = Sharding::kZero2;
  work.reduced_gradients = 4;
  const Memory same = memory(work);
  ASSERT_EQ(same.moment, "loss");
  work.reduced_gradients = 2;
  EXPECT_EQ(memory(work).moment, "loss");
  EXPECT_EQ(memory(work).total, same.total);
}

TEST(PlanMemory, ACpuHoldsSizeClasses) {
  MemoryWork work = llama_8b_memory();
  work.cpu = true;
  const Memory cpu = memory(work);
  work.cpu = false;
  const Memory gpu = memory(work);
  EXPECT_GE(cpu.masters, gpu.masters);
  EXPECT_LT(cpu.masters, 1.125 * gpu.masters);
}

}  // namespace
}  // namespace octavo::plan

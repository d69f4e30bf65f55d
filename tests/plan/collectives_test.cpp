#include "plan/collectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/forecast.h"
#include "plan/scale.h"
#include "plan/traffic.h"

namespace octavo::plan {
namespace {

using config::ShardingMode;

config::Settings settings_of(const char* model, const char* gpu, int64_t gpus, ShardingMode mode) {
  config::Settings s;
  s.model_name = model;
  s.gpu = gpu;
  s.num_gpus = gpus;
  s.sharding_mode = mode;
  s.batch_size = 1;
  s.max_seq_length = 4096;
  s.gradient_checkpointing = true;
  return s;
}

const StepTime& bf16_time(const Forecast& f) {
  return f.recipes.front().time;
}

TEST(Collectives, LatencyGrowsWithTheRing) {
  EXPECT_EQ(ring_latency(1, 8), 0);
  EXPECT_NEAR(ring_latency(8, 8), 8.4e-6 + 7 * 3.4e-6, 1e-12);
  EXPECT_NEAR(ring_latency(8, 8, kRingPcie), 8.4e-6 + 7 * 5.7e-6, 1e-12);
  EXPECT_NEAR(ring_latency(16, 8), 8.4e-6 + 14 * 3.4e-6 + 9.6e-6, 1e-12);
  EXPECT_GT(ring_latency(16384, 8), 20 * ring_latency(512, 8));
  // A tree's does not.
  EXPECT_LT(all_reduce_latency(16384, 8), 3 * all_reduce_latency(512, 8));
  EXPECT_LE(all_reduce_latency(8, 8), 2 * ring_latency(8, 8));
}

// plan said 4073 tokens/s where docs/reference/scale-tables.md said 370: it counted a doubling of
// the ranks as one hop more. The derivation: three collectives a block and micro-batch through a
// ring of all GPUs, and the bytes over the slower of NVLink and a node's adapters; what nine tenths
// of the computation do not hide is time.
TEST(Collectives, FullShardingTakesTheRingsHopsAtEverySize) {
  const Calibration& c = Calibration::fitted();
  for (const int64_t gpus : {8, 64, 512, 4096, 16384}) {
    const Forecast f = forecast(settings_of("qwen2.5-14b", "h100", gpus, ShardingMode::kFsdpFull));
    const StepTime& t = bf16_time(f);
    const double nodes = std::ceil(static_cast<double>(gpus) / 8);
    const double hops =
        8.4e-6 + (static_cast<double>(gpus) - nodes) * 3.4e-6 + (nodes - 1) * 9.6e-6;
    const double calls = 3.0 * static_cast<double>(f.shape.layers) + 3;
    EXPECT_NEAR(t.wire_latency / (calls * hops), 1, 0.02) << gpus;
    const double inside = 450e9 * c.of("nvlink"), node = 8 * 50e9 * c.of("network");
    const double rate = gpus > 8 ? std::min(inside, node) : inside;
    EXPECT_NEAR(t.wire_bytes / (f.traffic.total() / rate), 1, 1e-9) << gpus;
    const double wire = t.wire_bytes + t.wire_latency;
    const double compute = t.gemms + t.head + t.attention + t.elementwise;
    const double hidden = std::min(wire, c.of("fused.overlap") * compute);
    EXPECT_NEAR(t.collectives, wire - hidden + c.of("fused.contention") * hidden, 0.01 * wire);
    // The tables of the page are the same model.
    const ScalePoint p = scale_point({.model = "qwen2.5-14b", .gpus = gpus});
    EXPECT_NEAR(p.tokens_per_s / t.tokens_per_s, 1, 1e-9) << gpus;
  }
  const auto speed = [](int64_t gpus) {
    return bf16_time(forecast(settings_of("qwen2.5-14b", "h100", gpus, ShardingMode::kFsdpFull)))
        .tokens_per_s;
  };
  EXPECT_LT(speed(16384), 0.2 * speed(512));
}

// ddp and zero1 reduce in the last micro-batch alone: only its backward pass hides them, however
// many came before.
TEST(Collectives, ReductionsOfTheLastMicroBatchHideBehindItsBackwardPass) {
  for (const ShardingMode mode : {ShardingMode::kDdp, ShardingMode::kZero1}) {
    config::Settings s = settings_of("llama-3.2-1b", "rtx4090", 8, mode);
    s.max_seq_length = 1024;
    s.gradient_checkpointing = false;
    const StepTime one = bf16_time(forecast(s));
    s.gradient_accumulation_steps = 16;
    const StepTime many = bf16_time(forecast(s));
    EXPECT_NEAR(many.wire_bytes, one.wire_bytes, 1e-9);
    EXPECT_NEAR(many.collectives / one.collectives, 1, 1e-6) << config::name_of(mode);
    // 1.24 billion gradients of 2 bytes, 2 x 7/8 of them over PCIe at about 18 GB/s: 0.24 s, of
    // which a backward pass of 1024 tokens (0.04 s) hides little. 16 of them hid all of it.
    EXPECT_GT(many.collectives, 0.15);
  }
  // zero2 has one for each.
  config::Settings s = settings_of("llama-3.2-1b", "rtx4090", 8, ShardingMode::kZero2);
  const StepTime one = bf16_time(forecast(s));
  s.gradient_accumulation_steps = 16;
  EXPECT_GT(bf16_time(forecast(s)).wire_bytes, 8 * one.wire_bytes);
}

// Sums of adapters follow the backward pass in one call: nothing hides them.
TEST(Collectives, AdaptersAreSummedAtTheEnd) {
  config::Settings s = settings_of("llama-3.1-8b", "h100", 8, ShardingMode::kDdp);
  s.lora_rank = 8;
  const StepTime t = bf16_time(forecast(s));
  const double rate = 450e9 * Calibration::fitted().of("nvlink");
  const double bytes = 2 * 7.0 / 8 * 4 * 20'971'520;
  EXPECT_NEAR(t.collectives, bytes / rate + all_reduce_latency(8, 8), 1e-6);
}

// Each node's copy is summed with the others' when the last backward pass is over.
TEST(Collectives, NodesSumBehindTheBackwardPass) {
  const StepTime one =
      bf16_time(forecast(settings_of("qwen2.5-14b", "h100", 8, ShardingMode::kHybrid)));
  const StepTime many =
      bf16_time(forecast(settings_of("qwen2.5-14b", "h100", 64, ShardingMode::kHybrid)));
  const double own = 14.77e9 / 8, adapter = 50e9 * Calibration::fitted().of("network");
  EXPECT_NEAR(many.collectives - one.collectives, 2 * 7.0 / 8 * 4 * own / adapter, 0.05);
}

TEST(Collectives, WeightsThatTravelAsCodesTakeHalfAsLong) {
  config::Settings s = settings_of("llama-3.1-8b", "l40s", 8, ShardingMode::kFsdpFull);
  s.use_fp8 = true;
  const Forecast f = forecast(s);
  const double high = bf16_time(f).wire_bytes, low = f.chosen().time.wire_bytes;
  // Of 2 + 2 bytes gathered and 2 reduced, 1 + 1 are left of the first two: two thirds, and a
  // little more with the embedding and the head, which travel in BF16.
  EXPECT_LT(low, 0.74 * high);
  EXPECT_GT(low, 0.66 * high);
  // An A100 has no codes to send.
  s.gpu = "a100";
  const Forecast old = forecast(s);
  s.use_fp8 = false;
  EXPECT_DOUBLE_EQ(old.traffic.total(), forecast(s).traffic.total());
}

}  // namespace
}  // namespace octavo::plan

#include "monitor/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "monitor/async_sink.h"
#include "monitor/gpu_use.h"

namespace octavo::monitor {
namespace {

std::map<std::string, double> by_name(const Metrics& metrics) {
  std::map<std::string, double> map;
  for (const Metric& m : metrics) EXPECT_TRUE(map.emplace(m.name, m.value).second) << m.name;
  return map;
}

Fp8Tensor scaled_tensor(bool backward, float factor, float amax) {
  Fp8Tensor t;
  t.backward = backward;
  t.health.factor = factor;
  t.health.amax = amax;
  t.health.elements = 100;
  t.health.nonzero = 50;
  return t;
}

TEST(Metrics, NamesThatPeopleKnow) {
  StepRecord r;
  r.loss = 2.5;
  r.goodput = 0.9;
  r.mfu = 0.4;
  r.fp8_layers = 3;
  r.fp8_tensors = {scaled_tensor(false, 4, 1), scaled_tensor(false, 16, 2),
                   scaled_tensor(true, 2, 8)};
  r.gpus = {{.index = 0, .busy_percent = 80, .watts = 300, .memory_bytes = 5e9}};
  const auto values = by_name(metrics_of(r));
  for (const char* name :
       {"train/loss", "train/learning_rate", "train/grad_norm", "perf/tokens_per_second",
        "perf/mfu", "fp8/fwd_scale", "fp8/bwd_scale", "fp8/underflow", "memory/peak_bytes",
        "data/wait", "goodput", "gpu/0/utilization", "gpu/0/power", "gpu/0/memory"})
    EXPECT_TRUE(values.contains(name)) << name;
  EXPECT_DOUBLE_EQ(values.at("fp8/fwd_scale"), 8);  // the geometric mean of 4 and 16
  EXPECT_DOUBLE_EQ(values.at("fp8/bwd_scale"), 2);
  EXPECT_EQ(values.at("fp8/amax"), 8);
  EXPECT_EQ(by_name(metrics_of(EvalRecord{.val_loss = 3})).at("val/loss"), 3);
  EXPECT_EQ(by_name(metrics_of(TaskRecord{.acc_norm = 0.5})).at("eval/hellaswag_acc_norm"), 0.5);
  const auto plain = by_name(metrics_of(StepRecord{}));
  for (const char* name : {"perf/mfu", "goodput", "fp8/fwd_scale", "train/penalty"})
    EXPECT_FALSE(plain.contains(name)) << name;
}

// A source that had no tokens in a step has no loss in it: neither 0 nor null.
TEST(Metrics, OfSources) {
  StepRecord r;
  r.sources = {{.name = "web", .tokens = 64, .epochs = 0.5, .loss = 2.25},
               {.name = "books", .tokens = 32, .epochs = 1}};
  const auto values = by_name(metrics_of(r));
  EXPECT_EQ(values.at("data/web/loss"), 2.25);
  EXPECT_EQ(values.at("data/web/tokens"), 64);
  EXPECT_EQ(values.at("data/books/epochs"), 1);
  EXPECT_FALSE(values.contains("data/books/loss"));
}

TEST(Metrics, MfuKnowsThatFp8HasItsOwnPeak) {
  const Peaks bf16{.flops_per_token = 6e9, .bf16_per_second = 1e15, .fp8_per_second = 2e15};
  EXPECT_DOUBLE_EQ(*mfu_of(bf16, 1e5), 0.6);
  Peaks fp8 = bf16;
  fp8.fp8_share = 0.5;  // half of the work could be done in half the time
  EXPECT_DOUBLE_EQ(*mfu_of(fp8, 1e5), 0.45);
  fp8.fp8_per_second = 0;  // an A100 has none
  EXPECT_DOUBLE_EQ(*mfu_of(fp8, 1e5), 0.6);
  EXPECT_FALSE(mfu_of(Peaks{.flops_per_token = 6e9}, 1e5).has_value());
}

TEST(Metrics, HistogramsCountEveryFiniteNumberOnce) {
  const std::vector<std::vector<double>> cases = {{1},
                                                  {0, 0},
                                                  {0, 1, 2, 3, 4, 1023, 1024},
                                                  {1e-300, 1, 1e300},
                                                  {5e-324, 0.75},
                                                  {2, 2, INFINITY, NAN, -1},
                                                  {std::ldexp(1.0, 1023)}};
  const std::vector<int64_t> finite = {1, 2, 7, 3, 2, 2, 1};
  for (size_t i = 0; i < cases.size(); ++i) {
    const Histogram h = histogram_of("x", cases[i]);
    EXPECT_EQ(h.count, finite[i]) << i;
    EXPECT_EQ(std::accumulate(h.counts.begin(), h.counts.end(), int64_t{0}), finite[i]) << i;
    ASSERT_EQ(h.edges.size(), h.counts.size() + 1) << i;
    EXPECT_LE(h.counts.size(), 67u) << i;
    for (size_t e = 1; e < h.edges.size(); ++e) EXPECT_LT(h.edges[e - 1], h.edges[e]) << i;
    EXPECT_LE(h.edges.front(), h.least) << i;
    EXPECT_GE(h.edges.back(), h.most) << i;
  }
  EXPECT_EQ(histogram_of("x", cases[2]).counts,
            (std::vector<int64_t>{1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(histogram_of("x", {NAN}).count, 0);
}

TEST(Metrics, GpusAsNvmlTells) {
  const std::vector<GpuUse> gpus = GpuReader(OCTAVO_FAKE_NVML).read();
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].busy_percent, 87);
  EXPECT_EQ(gpus[0].watts, 412.5);
  EXPECT_EQ(gpus[0].memory_bytes, 61e9);
  EXPECT_FALSE(gpus[1].busy_percent.has_value() || gpus[1].watts.has_value());
  EXPECT_EQ(gpus[1].memory_bytes, 61e9);
  EXPECT_TRUE(GpuReader("libnothing-of-the-kind.so.1").read().empty());
}

}  // namespace
}  // namespace octavo::monitor

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench/bench.h"
#include "bench/report.h"
#include "tiny_settings.h"

namespace octavo::bench {
namespace {

using nn::Gemm;

TEST(Spread, MedianAndQuartiles) {
  const Spread s = spread_of({5, 1, 4, 2, 3});
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.low, 2);
  EXPECT_EQ(s.high, 4);
  EXPECT_EQ(spread_of({2, 1}).median, 1.5);
}

TEST(Round, EveryQuantizingIsSharedOut) {
  const Round round{.bf16 = {1, 2, 3}, .fp8 = {0.5, 1, 1.5}, .quantize = {0.1, 0.2, 0.4}};
  for (const bool frozen : {false, true}) {
    double sum = 0;
    for (const Gemm gemm : nn::kGemms) sum += quantize_share(round, gemm, frozen);
    EXPECT_NEAR(sum, 0.7, 1e-12);
  }
  EXPECT_NEAR(quantize_share(round, Gemm::kForward, false), 0.15, 1e-12);
  EXPECT_NEAR(quantize_share(round, Gemm::kForward, true), 0.2, 1e-12);
  EXPECT_EQ(quantize_share(round, Gemm::kWeightGradient, true), 0);
  EXPECT_NEAR(whole_fp8(round), 3.7, 1e-12);
}

std::vector<SweepPoint> sweep_of(const std::vector<double>& ratios) {
  std::vector<SweepPoint> sweep;
  int64_t tokens = 128;
  for (const double r : ratios) {
    sweep.push_back({tokens, r, 1, {r, r, r}});
    tokens *= 2;
  }
  return sweep;
}

TEST(PaysFrom, TheCrossingThatHolds) {
  EXPECT_FALSE(pays_from({}).has_value());
  EXPECT_FALSE(pays_from(sweep_of({0.7, 0.8, 0.9})).has_value());
  EXPECT_FALSE(pays_from(sweep_of({1.2, 1.1, 0.9})).has_value());
  EXPECT_EQ(pays_from(sweep_of({1.1, 1.2, 1.3})), 128);
  // Half-way between 256 and 512 on a logarithmic scale.
  EXPECT_NEAR(*pays_from(sweep_of({0.8, 0.9, 1.1})), 256 * std::sqrt(2), 1e-6);
  // A lead that is lost again does not count.
  EXPECT_NEAR(*pays_from(sweep_of({1.2, 0.9, 1.1, 1.3})), 256 * std::sqrt(2), 1e-6);
}

TEST(LayerBench, TimesEveryGemmAndEveryQuantizing) {
  const engine::Engine engine(engine::Target{});
  for (const bool frozen : {false, true}) {
    const LayerTimes times =
        time_layer(engine, {64, 128, 64}, {.frozen = frozen, .least_rounds = 4});
    EXPECT_EQ(times.rounds.size(), 4U);
    EXPECT_EQ(times.gemms().size(), frozen ? 2U : 3U);
    EXPECT_EQ(times.flops(), 2.0 * 64 * 128 * 64);
    for (const Gemm gemm : times.gemms()) {
      EXPECT_GT(times.bf16(gemm).median, 0);
      EXPECT_GT(times.fp8(gemm).median, 0);
      EXPECT_GT(times.quantize(gemm).median, 0);
    }
  }
}

config::Settings tiny() {
  config::Settings s = tiny_settings();
  s.vocab_size = 512;
  s.bench_seconds = 1;
  s.bench_steps = 2;
  return s;
}

TEST(Bench, EveryShapeOnceAndTheRehearsalIsSaid) {
  const Bench bench = run_bench(tiny());
  // qkv, attention out, up, down and the head.
  ASSERT_EQ(bench.entries.size(), 5U);
  EXPECT_TRUE(bench.entries.back().is_head);
  EXPECT_GE(bench.sweep.size(), 3U);
  ASSERT_TRUE(bench.steps.has_value());
  EXPECT_GT(bench.steps->ratio.median, 0);
  EXPECT_EQ(bench.steps->fp8_precision, "FP8 rehearsal");
  const std::string text = text_of(bench);
  EXPECT_NE(text.find("REHEARSAL"), std::string::npos);
  EXPECT_NE(text.find("FP8 starts to pay: never here"), std::string::npos);
  const Json json = json_of(bench);
  EXPECT_EQ(json["shapes"][0]["products"].size(), 3U);
  EXPECT_TRUE(json["rehearsal"]);
  EXPECT_NE(page_of(bench).find("No speed of a GPU follows"), std::string::npos);
  EXPECT_NE(gemms_picture(bench).find("<svg"), std::string::npos);
  EXPECT_NE(tokens_picture(bench).find("tokens in a pass"), std::string::npos);
}

TEST(Bench, ShapesThatAreTheSameAreTimedOnce) {
  config::Settings s = tiny();
  s.vocab_size = 256;  // the head is 256 x 64, as the MLP's first layer
  const Bench bench = run_bench(s);
  EXPECT_EQ(bench.entries.size(), 4U);
}

}  // namespace
}  // namespace octavo::bench

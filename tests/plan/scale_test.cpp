#include "plan/scale.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "expect_failure.h"
#include "plan/traffic.h"

namespace octavo::plan {
namespace {

using config::ShardingMode;

Shape small() {
  Shape s;
  s.layers = 4, s.hidden = 64, s.ffn = 128, s.heads = 4, s.kv_heads = 2, s.head_dim = 16;
  s.vocab = 256;
  return s;
}

TEST(Scale, TablesOfThePageAreCurrent) {
  const fs::path page = fs::path(OCTAVO_SOURCE_DIR) / "docs/reference/scale-tables.md";
  const std::string text = read_file(page, 1 << 20);
  EXPECT_TRUE(with_scale_tables(text) == text) << "run bench/scale.py";
  std::string old = text;
  old.replace(old.find("`ddp`", old.find("<!-- scale bytes -->")), 5, "`old`");
  EXPECT_TRUE(with_scale_tables(old) == text);
  expect_failure(ExitCode::kUsage, "scale bytes", [] { with_scale_tables("no tables here"); });
}

TEST(Scale, TrafficOfTheModes) {
  TrafficWork work{.shape = small(), .ranks = 4};
  const double blocks = static_cast<double>(matrix_parameters(work.shape));
  const double ends = static_cast<double>(head_parameters(work.shape));
  const double vectors = 2 * 0.75 * 4 * static_cast<double>(vector_parameters(work.shape));
  work.accumulation = 3;
  EXPECT_DOUBLE_EQ(traffic(work).reduce, 2 * 0.75 * 4 * (blocks + ends) + vectors);
  EXPECT_EQ(traffic(work).gather, 0);
  work.sharding = Sharding::kZero1;
  EXPECT_DOUBLE_EQ(traffic(work).reduce, 0.75 * 4 * (blocks + ends) + vectors);
  EXPECT_DOUBLE_EQ(traffic(work).gather, 0.75 * 2 * (blocks + ends));
  work.sharding = Sharding::kZero2;
  EXPECT_DOUBLE_EQ(traffic(work).reduce, 3 * 0.75 * 4 * (blocks + ends) + vectors);
  work.sharding = Sharding::kFull;
  EXPECT_DOUBLE_EQ(traffic(work).gather, 3 * 0.75 * 2 * (1.75 * blocks + ends));
  work.recompute = true;
  EXPECT_DOUBLE_EQ(traffic(work).gather, 3 * 0.75 * 2 * (1.75 * blocks + ends));
  work.shape.tied = true;  // then the embedding comes twice
  EXPECT_DOUBLE_EQ(traffic(work).gather, 3 * 0.75 * 2 * (1.75 * blocks + ends));
  work.shape.tied = false;
  work.shard_group = 2;
  const Traffic hybrid = traffic(work);
  EXPECT_DOUBLE_EQ(hybrid.gather, 3 * 0.5 * 2 * (1.75 * blocks + ends));
  EXPECT_DOUBLE_EQ(
      hybrid.replicas,
      2 * 0.5 * 4 * ((blocks + ends) / 2 + static_cast<double>(vector_parameters(work.shape))));
  work = {.shape = small(), .sharding = Sharding::kNone};
  EXPECT_EQ(traffic(work).total(), 0);
}

TEST(Scale, CodesAreHalfOfBf16) {
  TrafficWork work{.shape = small(), .sharding = Sharding::kFull, .ranks = 8};
  work.shape.layers = 100;
  const double bf16 = traffic(work).gather;
  work.weight_bytes = 1;
  EXPECT_NEAR(traffic(work).gather / bf16, 0.5, 0.01);
  work.scale_bytes = 1.0 / 32;
  work.one_copy = false;
  EXPECT_LT(traffic(work).gather / bf16, 0.55);
}

TEST(Scale, WhatGrowsAndWhatDoesNot) {
  const auto at = [](int64_t gpus, ShardingMode mode) {
    return scale_point({.model = "qwen2.5-14b", .gpus = gpus, .mode = mode});
  };
  const ScalePoint few = at(8, ShardingMode::kFsdpFull), many = at(16384, ShardingMode::kFsdpFull);
  EXPECT_TRUE(few.fits);
  EXPECT_LT(many.memory, few.memory);
  EXPECT_LT(many.gather / few.gather, 8.0 / 7 + 1e-3);
  EXPECT_GT(many.latency_seconds, many.bytes_seconds);
  EXPECT_LT(few.latency_seconds, 0.1 * few.bytes_seconds);
  EXPECT_GT(few.step, few.compute);
  const ScalePoint hybrid = at(16384, ShardingMode::kHybrid);
  EXPECT_LT(hybrid.step, many.step);
  EXPECT_DOUBLE_EQ(hybrid.memory, at(8, ShardingMode::kHybrid).memory);
  EXPECT_FALSE(at(8, ShardingMode::kDdp).fits);
}

}  // namespace
}  // namespace octavo::plan

#include "diagnose/what_if.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fp8/quantize.h"

namespace octavo::diagnose {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::FormatChoice;
using fp8::Recipe;
using fp8::Role;

constexpr int64_t kTokens = 128, kInputs = 256, kOutputs = 128;

const engine::Engine& rehearsal() {
  static const engine::Engine engine(engine::Target{});
  return engine;
}

Tensor drawn(at::IntArrayRef sizes, uint64_t seed, double scale = 1) {
  at::manual_seed(seed);
  return (at::randn(sizes) * scale).to(at::kBFloat16);
}

// As delayed has it after a step that saw the same tensors.
FactorOf factors_of(const Tensor& x, const Tensor& w, const Tensor& dy, double grown = 1) {
  return [=](const Variant& v, Role role, Direction direction) {
    const Tensor& t = role == Role::kInput ? x : role == Role::kWeight ? w : dy;
    const float amax = t.abs().max().to(at::kFloat).item<float>();
    const auto format = side_of(v.recipe, v.format, role, direction).format;
    return static_cast<float>(
        grown * std::ldexp(fp8::max_value(format), -static_cast<int>(v.margin)) / amax);
  };
}

LayerStats look(const Tensor& x, const Tensor& w, const Tensor& dy, const FactorOf& factor,
                const fp8::Options& in_use = {}) {
  LayerStats stats = stats_for("layer", w.size(0), w.size(1), variants(in_use));
  measure_forward(rehearsal(), x, w, factor, stats);
  measure_backward(rehearsal(), dy, x, w, factor, stats);
  return stats;
}

// Signal to noise and underflow in plain loops.
struct Plain {
  double sqnr_db = 0, underflowed_percent = 0, saturated_percent = 0;
};

Plain plainly(const Tensor& t, const Variant& v, Role role, Direction direction, float given) {
  const Tensor values = t.to(at::kFloat).contiguous();
  const auto count = static_cast<size_t>(values.numel());
  const std::span<const float> span(values.const_data_ptr<float>(), count);
  const auto made = fp8::quantize(v.recipe, side_of(v.recipe, v.format, role, direction), direction,
                                  {span, t.size(0), t.size(1)}, given);
  const auto back = fp8::dequantize(made, t.size(1));
  double signal = 0, noise = 0, lost = 0, nonzero = 0;
  for (size_t i = 0; i < count; ++i) {
    signal += std::pow(static_cast<double>(span[i]), 2);
    noise += std::pow(static_cast<double>(span[i]) - static_cast<double>(back[i]), 2);
    lost += span[i] != 0 && back[i] == 0;
    nonzero += span[i] != 0;
  }
  return {10 * std::log10(signal / noise), 100 * lost / nonzero,
          100.0 * static_cast<double>(made.incidents.saturated) / static_cast<double>(count)};
}

TEST(WhatIf, StatsAreThoseOfPlainLoops) {
  const Tensor x = drawn({kTokens, kInputs}, 1), w = drawn({kOutputs, kInputs}, 2, 0.02),
               dy = drawn({kTokens, kOutputs}, 3, 1e-5) * drawn({kTokens, 1}, 4).exp();
  const auto factor = factors_of(x, w, dy);
  const LayerStats found = look(x, w, dy, factor);
  int compared = 0;
  for (const VariantStats& v : found.variants)
    for (const TensorStats& t : v.tensors) {
      if (fp8::is_fp4(v.variant.recipe)) continue;  // fp4_linear_test has its statistics
      const Tensor& tensor = t.role == Role::kInput ? x : t.role == Role::kWeight ? w : dy;
      const Plain wanted =
          plainly(tensor, v.variant, t.role, t.direction, factor(v.variant, t.role, t.direction));
      EXPECT_NEAR(t.health.sqnr_db(), wanted.sqnr_db, 1e-3) << name_of(v.variant);
      EXPECT_NEAR(t.health.underflowed_percent(), wanted.underflowed_percent, 1e-9);
      EXPECT_NEAR(t.health.saturated_percent(), wanted.saturated_percent, 1e-9);
      ++compared;
    }
  // Four per-tensor variants with one copy of each, rowwise and mxfp8 with two, blockwise with one
  // of the weight.
  EXPECT_EQ(compared, 4 * 3 + 2 * 6 + 5);
}

TEST(WhatIf, GemmErrorIsThatOfTheDecodedOperands) {
  const Tensor x = drawn({kTokens, kInputs}, 5), w = drawn({kOutputs, kInputs}, 6),
               dy = drawn({kTokens, kOutputs}, 7);
  const LayerStats found = look(x, w, dy, factors_of(x, w, dy));
  const auto decoded = [](const Tensor& t, Role role) {
    const Tensor values = t.to(at::kFloat).contiguous();
    const auto made = fp8::quantize(
        Recipe::kCurrent, side_of(Recipe::kCurrent, FormatChoice::kHybrid, role, Direction::kRow),
        Direction::kRow,
        {std::span(values.const_data_ptr<float>(), static_cast<size_t>(values.numel())), t.size(0),
         t.size(1)},
        1);
    return at::tensor(fp8::dequantize(made, t.size(1)), at::kFloat).view(t.sizes());
  };
  const Tensor wanted = at::mm(x.to(at::kFloat), w.to(at::kFloat).t()),
               got = at::mm(decoded(x, Role::kInput), decoded(w, Role::kWeight).t());
  const double error =
      ((got - wanted).square().sum(1) / wanted.square().sum(1)).mean().sqrt().item<double>();
  const VariantStats* v = found.find({Recipe::kCurrent, FormatChoice::kHybrid, 0});
  ASSERT_NE(v, nullptr);
  // What is left is the rounding of the result to BF16.
  EXPECT_NEAR(*v->errors[0], error, 0.02 * error);
  EXPECT_GT(error, 0.02);
  EXPECT_LT(*found.bf16[0], 0.003);
}

TEST(WhatIf, NumbersThatFp8HoldsExactlyLoseNothing) {
  at::manual_seed(8);
  const auto signs = [](at::IntArrayRef sizes) {
    return (at::randint(0, 2, sizes) * 2 - 1).to(at::kBFloat16);
  };
  const Tensor x = signs({kTokens, kInputs}), w = signs({kOutputs, kInputs}),
               dy = signs({kTokens, kOutputs});
  const LayerStats found = look(x, w, dy, factors_of(x, w, dy));
  for (const VariantStats& v : found.variants)
    if (!fp8::is_fp4(v.variant.recipe)) EXPECT_LT(v.error(), 1e-6) << name_of(v.variant);
}

TEST(WhatIf, AnOutlierIsForBlocks) {
  Tensor x = drawn({kTokens, kInputs}, 9, 1e-3);
  x[3][5] = 3e4;  // 448 / 3e4 leaves the others below E4M3's smallest value
  const Tensor w = drawn({kOutputs, kInputs}, 10), dy = drawn({kTokens, kOutputs}, 11);
  const LayerStats found = look(x, w, dy, factors_of(x, w, dy));
  const auto underflow = [&](const Variant& v) {
    return found.find(v)->tensors.front().health.underflowed_percent();
  };
  EXPECT_GT(underflow({Recipe::kCurrent, FormatChoice::kHybrid, 0}), 90);
  EXPECT_LT(underflow({Recipe::kBlockwise, FormatChoice::kE4m3, 0}), 5);
  const Recipe best = found.best()->variant.recipe;
  EXPECT_TRUE(best == Recipe::kBlockwise || best == Recipe::kMxfp8 || best == Recipe::kRowwise)
      << name_of(found.best()->variant);
  EXPECT_LT(found.find({Recipe::kBlockwise, FormatChoice::kE4m3, 0})->error(),
            found.find({Recipe::kCurrent, FormatChoice::kHybrid, 0})->error());
}

TEST(WhatIf, AMarginTooHighUnderflowsAndAScaleTooOldSaturates) {
  const Tensor x = drawn({kTokens, kInputs}, 12), w = drawn({kOutputs, kInputs}, 13),
               dy = drawn({kTokens, kOutputs}, 14);
  const fp8::Options margin{.margin = 16};
  const LayerStats high = look(x, w, dy, factors_of(x, w, dy), margin);
  const VariantStats& in_use = high.variants.front();
  EXPECT_EQ(in_use.variant.margin, 16);
  EXPECT_GT(in_use.tensors.front().health.underflowed_percent(), 40);
  EXPECT_FALSE(fp8::health_problem(in_use.tensors.front().health).empty());
  EXPECT_EQ(high.variants[1].variant.margin, 0);
  EXPECT_TRUE(fp8::health_problem(high.variants[1].tensors.front().health).empty());

  // The tensors grew a hundred times since the scale was made.
  const LayerStats old = look(x, w, dy, factors_of(x, w, dy, 100));
  EXPECT_GT(old.variants.front().tensors.front().health.saturated_percent(), 1);
}

// Four bits are looked at too, rotated and rounded as a run would: a third of E4M3's decibels less,
// and what its switches turn off is another variant.
TEST(WhatIf, FourBits) {
  const Tensor x = drawn({kTokens, 1024}, 1), w = drawn({kOutputs, 1024}, 2, 0.02),
               dy = drawn({kTokens, kOutputs}, 3, 1e-5);
  const LayerStats stats = look(x, w, dy, factors_of(x, w, dy));
  const VariantStats* fp4 = stats.find({Recipe::kNvfp4, FormatChoice::kE4m3, 0});
  ASSERT_NE(fp4, nullptr);
  EXPECT_EQ(fp4->tensors.size(), 5u);  // both copies of what is not in squares
  for (const TensorStats& t : fp4->tensors) {
    EXPECT_TRUE(fp8::health_problem(t.health).empty());
    EXPECT_GT(t.health.sqnr_db(), 14);
    EXPECT_LT(t.health.sqnr_db(), 22);
  }
  EXPECT_GT(fp4->error(), 2 * stats.find({Recipe::kMxfp8, FormatChoice::kE4m3, 0})->error());
  EXPECT_NE(stats.best(), fp4);
  const fp8::Options plain{.recipe = Recipe::kNvfp4,
                           .format = FormatChoice::kE4m3,
                           .hadamard = false,
                           .stochastic_rounding = false};
  EXPECT_EQ(name_of(variants(plain).front()), "nvfp4 not rotated to nearest");
  EXPECT_EQ(options_of(variant_of(plain)), plain);
}

TEST(WhatIf, SizesThatTheHardwareRefusesAreNotTried) {
  const LayerStats stats = stats_for("narrow", 96, 96, variants({}));
  EXPECT_FALSE(stats.find({Recipe::kBlockwise, FormatChoice::kE4m3, 0})->is_legal());
  EXPECT_TRUE(stats.find({Recipe::kMxfp8, FormatChoice::kE4m3, 0})->is_legal());
  const LayerStats odd = stats_for("odd", 100, 96, variants({}));
  EXPECT_EQ(odd.best(), nullptr);
}

// Far less than quantizing does, and in the backward pass, where sums are promoted, less than
// forward; nothing for recipes that Hopper does not have.
TEST(WhatIf, HoppersAccumulators) {
  const engine::Engine hopper(engine::Target{.hopper_sums = true});
  const Tensor x = drawn({kTokens, 1024}, 1), w = drawn({kOutputs, 1024}, 2, 0.02),
               dy = drawn({kTokens, kOutputs}, 3, 1e-5);
  const auto factor = factors_of(x, w, dy);
  for (const Recipe recipe : fp8::kRecipes) {
    LayerStats stats =
        stats_for("layer", w.size(0), w.size(1), {{recipe, fp8::default_format(recipe), 0}});
    measure_hopper_forward(rehearsal(), hopper, x, w, factor, stats);
    measure_hopper_backward(rehearsal(), hopper, dy, x, w, factor, stats);
    if (recipe == Recipe::kMxfp8) {
      for (const auto& error : stats.hopper_sums) EXPECT_FALSE(error);
      continue;
    }
    SCOPED_TRACE(config::name_of(recipe));
    for (const auto& error : stats.hopper_sums) {
      ASSERT_TRUE(error);
      EXPECT_GT(*error, 1e-5);
      EXPECT_LT(*error, 5e-3);
    }
    EXPECT_LT(*stats.hopper_sums[2], 1e-3);
  }
}

}  // namespace
}  // namespace octavo::diagnose

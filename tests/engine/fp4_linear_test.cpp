// NVFP4 rehearsed on a CPU: GEMMs of what fp8/nvfp4.cpp makes of the operands, and their
// statistics.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/fp8_linear.h"
#include "engine/padded_fp8_linear.h"

namespace octavo::engine {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Role;

constexpr int64_t kTokens = 96, kInputs = 160, kOutputs = 64;

// A copy as the definition has it: numbers along the sum, in FP64, as large as the matrix's.
struct Wanted {
  Tensor values;  // [rows along the sum's other side, terms], decoded
  float amax = 0;
};

class Fp4Linear : public testing::TestWithParam<cpu::GemmOperands> {
 protected:
  void SetUp() override {
    at::manual_seed(3);
    if (GetParam() == cpu::GemmOperands::kBf16 && !cpu::bf16_gemms_missing().empty())
      GTEST_SKIP() << cpu::bf16_gemms_missing();
  }

  static QuantizeSpec spec(const fp8::Options& options, Role role, Direction direction) {
    return {.side = side_of(options, role, direction),
            .wanted = true,
            .keep = role == Role::kInput && direction == Direction::kColumn,
            .factor = {},
            .amax = {},
            .rotate = is_rotated(options, role, direction),
            .rounding = {.stochastic = is_stochastic(options, role),
                         .seed = 5,
                         .stream = static_cast<uint64_t>(direction)}};
  }
  Fp8Matrix quantized(const fp8::Options& options, const Tensor& m, Role role) const {
    return op->quantize(m, options.recipe, spec(options, role, Direction::kRow),
                        spec(options, role, Direction::kColumn));
  }
  static Wanted wanted(const fp8::Options& options, const Tensor& m, Role role,
                       Direction direction) {
    const QuantizeSpec how = spec(options, role, direction);
    const Tensor along = (direction == Direction::kRow ? m : m.t()).to(at::kFloat).contiguous();
    const std::span numbers(along.const_data_ptr<float>(), static_cast<size_t>(along.numel()));
    const std::vector<float> source =
        how.rotate ? fp8::rotated(numbers) : std::vector<float>(numbers.begin(), numbers.end());
    const auto blocks = how.side.granularity == fp8::Granularity::kSquare16
                            ? fp8::Nvfp4Blocks::k16x16
                            : fp8::Nvfp4Blocks::k1x16;
    const fp8::Nvfp4 made =
        fp8::quantize_nvfp4(source, along.size(0), along.size(1), blocks, how.rounding);
    const auto values = fp8::scaled_values(made, along.size(0), along.size(1), blocks);
    return {at::tensor(values).view(along.sizes()).to(at::kDouble), made.amax};
  }
  static Tensor multiplied(const Wanted& a, const Wanted& b) {
    return at::mm(a.values, b.values.t()) * static_cast<double>(fp8::nvfp4_alpha(a.amax, b.amax));
  }
  static double worst(const Tensor& found, const Tensor& exact) {
    return ((found.to(at::kDouble) - exact).abs().max() / exact.abs().max()).item<double>();
  }

  const Tensor x = at::randn({kTokens, kInputs}).to(at::kBFloat16),
               w = (at::randn({kOutputs, kInputs}) * 0.1).to(at::kBFloat16),
               dy = (at::randn({kTokens, kOutputs}) * 1e-3).to(at::kBFloat16);
  const std::unique_ptr<Fp8Linear> op = cpu::make_rehearsal(GetParam());
};

std::vector<fp8::Options> all_options() {
  std::vector<fp8::Options> made;
  for (int bits = 0; bits < 8; ++bits)
    made.push_back({.recipe = fp8::recipe_with(fp8::ScaleRule::kNvfp4),
                    .format = fp8::FormatChoice::kE4m3,
                    .hadamard = (bits & 1) != 0,
                    .stochastic_rounding = (bits & 2) != 0,
                    .weight_blocks = (bits & 4) != 0});
  return made;
}

TEST_P(Fp4Linear, GemmsOfTheDefinition) {
  for (const fp8::Options& options : all_options()) {
    const Fp8Matrix qx = quantized(options, x, Role::kInput),
                    qw = quantized(options, w, Role::kWeight),
                    qdy = quantized(options, dy, Role::kGradient);
    Tensor y = at::empty({kTokens, kOutputs}, at::kBFloat16),
           dx = at::empty({kTokens, kInputs}, at::kBFloat16), dw = at::empty({kOutputs, kInputs}),
           sum = at::ones({kOutputs, kInputs});
    op->forward(qx, qw, {}, y);
    op->input_gradient(qdy, qw, dx);
    op->weight_gradient(qdy, qx, dw, Accumulate::kOverwrite);
    op->weight_gradient(qdy, qx, sum, Accumulate::kAdd);
    const auto of = [&](const Tensor& m, Role role, Direction direction) {
      return wanted(options, m, role, direction);
    };
    constexpr double kBf16 = 0x1p-8, kFp32 = 1e-6;
    EXPECT_LT(worst(y, multiplied(of(x, Role::kInput, Direction::kRow),
                                  of(w, Role::kWeight, Direction::kRow))),
              kBf16);
    EXPECT_LT(worst(dx, multiplied(of(dy, Role::kGradient, Direction::kRow),
                                   of(w, Role::kWeight, Direction::kColumn))),
              kBf16);
    const Tensor exact = multiplied(of(dy, Role::kGradient, Direction::kColumn),
                                    of(x, Role::kInput, Direction::kColumn));
    EXPECT_LT(worst(dw, exact), kFp32);
    EXPECT_LT(worst(sum, exact + 1), kFp32);
  }
}

// What quantizing costs, in dB: that of Gaussian numbers in NVFP4 is known (20.4 in 1x16, 19.1 in
// 16x16), and rounding at random costs more.
TEST_P(Fp4Linear, StatisticsAreOfWhatWasQuantized) {
  const fp8::Options options = all_options().back();
  const auto measured = [&](const Tensor& m, Role role, Direction direction) {
    return op->measure(m, quantized(options, m, role), direction);
  };
  const auto input = measured(x, Role::kInput, Direction::kRow),
             rotated = measured(x, Role::kInput, Direction::kColumn),
             weight = measured(w, Role::kWeight, Direction::kRow),
             gradient = measured(dy, Role::kGradient, Direction::kRow),
             gradient_rotated = measured(dy, Role::kGradient, Direction::kColumn);
  EXPECT_NEAR(input.sqnr_db(), 20.4, 0.7);
  EXPECT_NEAR(rotated.sqnr_db(), 20.4, 0.7);
  EXPECT_NEAR(weight.sqnr_db(), 19.1, 0.7);
  for (const auto& h : {gradient, gradient_rotated}) {
    EXPECT_GT(h.sqnr_db(), 15);
    EXPECT_LT(h.sqnr_db(), 19);
  }
  EXPECT_EQ(input.elements, x.numel());
  EXPECT_EQ(input.amax, x.abs().max().item<float>());
  EXPECT_EQ(input.incidents, (fp8::Incidents{.underflowed = input.incidents.underflowed}));
  EXPECT_LT(input.underflowed_percent(), 15);
  EXPECT_EQ(fp8::health_problem(input), "");
}

// A row that is tiny beside the rest has block scales of 0: it is lost, nothing of it saturated.
TEST_P(Fp4Linear, BlocksWithAScaleOfZeroUnderflow) {
  const fp8::Options options = all_options().back();
  Tensor m = x.clone();
  m[0].fill_(1e-8);
  const auto h = op->measure(m, quantized(options, m, Role::kInput), Direction::kRow);
  EXPECT_EQ(h.incidents.saturated, 0);
  EXPECT_GE(h.incidents.underflowed, m.size(1));
}

TEST_P(Fp4Linear, WhatIsNoNumberIsCounted) {
  const fp8::Options options = all_options().front();
  for (const float bad : {INFINITY, NAN}) {
    const int64_t before = op->infinite_operands();
    quantized(options, x, Role::kWeight);
    EXPECT_EQ(op->infinite_operands(), before);
    Tensor broken = x.clone();
    broken[3][4] = bad;
    quantized(options, broken, Role::kWeight);
    EXPECT_GT(op->infinite_operands(), before);
  }
}

// Tokens that are no multiple of 32 are made up by zeros, which change nothing.
TEST_P(Fp4Linear, AnyNumberOfTokens) {
  fp8::Options options = all_options()[5];  // to nearest: draws are of the place
  const auto padded = with_padding(cpu::make_rehearsal(GetParam()));
  const Tensor some = x.narrow(0, 0, 40).contiguous(),
               zeros = at::zeros({24, kInputs}, at::kBFloat16),
               some_dy = dy.narrow(0, 0, 40).contiguous();
  const auto made = [&](Fp8Linear& by, const Tensor& m, Role role) {
    return by.quantize(m, options.recipe, spec(options, role, Direction::kRow),
                       spec(options, role, Direction::kColumn));
  };
  Tensor dw = at::empty({kOutputs, kInputs}), wanted_dw = at::empty_like(dw);
  padded->weight_gradient(made(*padded, some_dy, Role::kGradient),
                          made(*padded, some, Role::kInput), dw, Accumulate::kOverwrite);
  op->weight_gradient(
      made(*op, at::cat({some_dy, at::zeros({24, kOutputs}, at::kBFloat16)}), Role::kGradient),
      made(*op, at::cat({some, zeros}), Role::kInput), wanted_dw, Accumulate::kOverwrite);
  EXPECT_TRUE(dw.equal(wanted_dw));
}

INSTANTIATE_TEST_SUITE_P(Engine, Fp4Linear,
                         testing::Values(cpu::GemmOperands::kBf16, cpu::GemmOperands::kFp32),
                         [](const auto& info) {
                           return info.param == cpu::GemmOperands::kBf16 ? "bf16" : "fp32";
                         });

}  // namespace
}  // namespace octavo::engine

// The rehearsal with Hopper's accumulators: GEMMs of the codes that the plain quantizer makes, dot
// product by dot product.

#include <gtest/gtest.h>

#include "engine/cpu/cpu.h"
#include "engine/fp8_matrices.h"
#include "fp8/accumulator.h"

namespace octavo::engine {
namespace {

using fp8::Direction;
using fp8::Promotion;
using fp8::Role;

// Longer than a promotion in every direction, and ragged.
constexpr int64_t kTokens = 160, kInputs = 272, kOutputs = 144;

class HopperRehearsal : public testing::TestWithParam<fp8::Recipe> {
 protected:
  struct Operand {
    Fp8Matrix found;
    Plain row, column;
  };
  Operand operand(const at::Tensor& x, Role role) {
    const Sides sides = sides_of(GetParam(), fp8::default_format(GetParam()), role);
    return {op->quantize(x, GetParam(), order_of(sides, Direction::kRow, false, kFactor),
                         order_of(sides, Direction::kColumn, role == Role::kInput, kFactor)),
            plain(x, sides, Direction::kRow, kFactor),
            plain(x, sides, Direction::kColumn, kFactor)};
  }

  // One element of a result: the operands' rows `i` and `j` along the sum, of which every 128 terms
  // (`split`), or all, have one factor.
  static float element(const fp8::Quantization& a, int64_t a_columns, Direction a_direction,
                       int64_t i, const fp8::Quantization& b, int64_t b_columns,
                       Direction b_direction, int64_t j, int64_t terms, Promotion promotion) {
    const bool split =
        a.grid.count() > 1 && fp8::recipe_with(fp8::Granularity::kBlock128) == GetParam();
    const auto at = [](const fp8::Quantization& q, int64_t columns, Direction d, int64_t row,
                       int64_t k) {
      const int64_t r = d == Direction::kRow ? row : k, c = d == Direction::kRow ? k : row;
      return std::pair(q.codes[static_cast<size_t>(r * columns + c)],
                       q.scales[static_cast<size_t>(q.grid.block_of(r, c))].decode);
    };
    float sum = 0;
    const int64_t span = split ? 128 : terms;
    for (int64_t first = 0; first < terms; first += span) {
      std::vector<uint8_t> x, y;
      float factor = 1;
      for (int64_t k = first; k < std::min(first + span, terms); ++k) {
        const auto [code_a, scale_a] = at(a, a_columns, a_direction, i, k);
        const auto [code_b, scale_b] = at(b, b_columns, b_direction, j, k);
        x.push_back(code_a);
        y.push_back(code_b);
        factor = scale_a * scale_b;
      }
      const auto count = static_cast<int64_t>(x.size());
      sum += factor * hopper_dot({a.side.format, x, 1, count, {}}, {b.side.format, y, 1, count, {}},
                                 split ? Promotion::kEvery128 : promotion);
    }
    return sum;
  }

  const std::unique_ptr<Fp8Linear> op = cpu::make_hopper_rehearsal();
};

TEST_P(HopperRehearsal, MultipliesDotProductByDotProduct) {
  at::manual_seed(11);
  const Operand x = operand(at::randn({kTokens, kInputs}).to(at::kBFloat16), Role::kInput),
                w = operand((at::randn({kOutputs, kInputs}) * 0.1).to(at::kBFloat16),
                            Role::kWeight),
                dy = operand((at::randn({kTokens, kOutputs}) * 0.01).to(at::kBFloat16),
                             Role::kGradient);
  const at::Tensor bias = at::randn({kOutputs});
  at::Tensor y = at::empty({kTokens, kOutputs}, at::kBFloat16),
             dx = at::empty({kTokens, kInputs}, at::kBFloat16),
             dw = at::full({kOutputs, kInputs}, NAN), sum = at::ones({kOutputs, kInputs});
  op->forward(x.found, w.found, bias, y);
  op->input_gradient(dy.found, w.found, dx);
  op->weight_gradient(dy.found, x.found, dw, Accumulate::kOverwrite);
  op->weight_gradient(dy.found, x.found, sum, Accumulate::kAdd);
  const std::pair<int64_t, int64_t> places[] = {{0, 0}, {7, 130}, {159, 143}, {100, 5}};
  for (const auto& [i, j] : places) {
    const float forward = element(x.row, kInputs, Direction::kRow, i, w.row, kInputs,
                                  Direction::kRow, j, kInputs, Promotion::kNever) +
                          bias[j].item<float>();
    EXPECT_EQ(y[i][j].item<float>(), at::tensor(forward).to(at::kBFloat16).item<float>());
    const float backward = element(dy.row, kOutputs, Direction::kRow, i, w.column, kInputs,
                                   Direction::kColumn, j, kOutputs, Promotion::kEvery128);
    EXPECT_EQ(dx[i][j].item<float>(), at::tensor(backward).to(at::kBFloat16).item<float>());
    const int64_t o = i % kOutputs;
    const float weight = element(dy.column, kOutputs, Direction::kColumn, o, x.column, kInputs,
                                 Direction::kColumn, j, kTokens, Promotion::kEvery128);
    EXPECT_EQ(dw[o][j].item<float>(), weight);
    EXPECT_EQ(sum[o][j].item<float>(), weight + 1);
  }
}

std::vector<fp8::Recipe> recipes_of_hopper() {
  std::vector<fp8::Recipe> found;
  for (const fp8::Recipe recipe : kRecipes)
    if (fp8::traits_of(recipe).native.has(90)) found.push_back(recipe);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Engine, HopperRehearsal, testing::ValuesIn(recipes_of_hopper()),
                         [](const auto& info) { return std::string(config::name_of(info.param)); });

TEST(HopperRehearsalChoice, RunsWhereItIsAskedFor) {
  std::vector<Choice> choices;
  pick<Fp8Linear>({.device = at::kCPU, .compute = at::kBFloat16, .hopper_sums = true}, choices);
  EXPECT_EQ(choices.back().implementation, "cpu/rehearsal_hopper");
  pick<Fp8Linear>({.device = at::kCPU, .compute = at::kBFloat16}, choices);
  EXPECT_NE(choices.back().implementation, "cpu/rehearsal_hopper");
}

}  // namespace
}  // namespace octavo::engine

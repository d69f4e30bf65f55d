#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(SwiGlu);
OCTAVO_OP_GRADIENT_TESTS(SwiGlu);
OCTAVO_OP_TESTS(GeGlu);
OCTAVO_OP_GRADIENT_TESTS(GeGlu);
OCTAVO_OP_TESTS(Rope);

// The exponential's argument is the gate itself: its rounding grows with it.
constexpr double kUlps = 8 * 0x1p-24;

at::Tensor gates(const at::Tensor& x) {
  return magnitude(x.narrow(1, 0, x.size(1) / 2));
}

TEST_P(SwiGluValues, ForwardAndBackward) {
  for (const auto& [rows, width] : extents()) {
    SCOPED_TRACE(text_of(Extent{rows, width}));
    const at::Tensor x = random({rows, 2 * width}, 4), dy = random({rows, width});
    const at::Tensor wanted = oracle->forward(x), d_wanted = oracle->backward(dy, x);
    EXPECT_TRUE(near(op->forward(x), wanted, kUlps * magnitude(wanted) * (1 + gates(x)) + 1e-34));
    // s (1 + g (1 - s)) cancels near its zero: the slack is of the parts.
    const at::Tensor up = magnitude(x.narrow(1, width, width)), g = gates(x);
    const at::Tensor parts =
        magnitude(dy).repeat({1, 2}) * at::cat({up * (1 + g), g}, 1) * (1 + g).repeat({1, 2});
    EXPECT_TRUE(near(op->backward(dy, x), d_wanted, kUlps * parts + 1e-34));
  }
}

TEST_P(SwiGluTest, HugeGatesAreZeroOrThemselves) {
  const at::Tensor x = at::tensor({-1e4, 1e4, 0.0, 2.0, 2.0, 2.0}).view({1, 6}).to(compute);
  const at::Tensor y = op->forward(x);
  EXPECT_EQ(y[0][0].item<float>(), 0);
  EXPECT_TRUE(same_bits(y[0][1], (x[0][1] * 2)));
  EXPECT_EQ(y[0][2].item<float>(), 0);
  EXPECT_TRUE(all_finite(op->backward(at::ones({1, 3}, compute), x)));
}

TEST_P(SwiGluTest, NanShows) {
  for (const int64_t column : {3, 20}) {
    at::Tensor x = random({3, 34});
    x[1][column] = NAN;
    const at::Tensor y = op->forward(x), dx = op->backward(random({3, 17}), x);
    EXPECT_EQ(at::isfinite(y).logical_not().sum().item<int64_t>(), 1);
    EXPECT_TRUE(any_not_finite(dx[1]) && all_finite(dx[0]) && all_finite(dx[2]));
  }
}

TEST_P(SwiGluGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({3, 14});
  const at::Tensor dy = random({3, 7});
  expect_derivative(op->backward(dy, x), numeric_gradient(x, dy, [&] { return op->forward(x); }));
}

TEST_P(GeGluValues, ForwardAndBackward) {
  for (const auto& [rows, width] : extents()) {
    SCOPED_TRACE(text_of(Extent{rows, width}));
    const at::Tensor x = random({rows, 2 * width}, 3), dy = random({rows, width});
    const at::Tensor wanted = oracle->forward(x), d_wanted = oracle->backward(dy, x);
    // The exponential's argument is a cube of the gate.
    const at::Tensor up = magnitude(x.narrow(1, width, width)), g = gates(x),
                     far = 1 + g + g.pow(3);
    EXPECT_TRUE(near(op->forward(x), wanted, kUlps * up * g * far + 1e-34));
    const at::Tensor parts =
        magnitude(dy).repeat({1, 2}) * at::cat({up * far, g}, 1) * far.repeat({1, 2});
    EXPECT_TRUE(near(op->backward(dy, x), d_wanted, kUlps * parts + 1e-34));
  }
}

TEST_P(GeGluTest, HugeGatesAreZeroOrThemselves) {
  const at::Tensor x = at::tensor({-1e4, 1e4, 0.0, 2.0, 2.0, 2.0}).view({1, 6}).to(compute);
  const at::Tensor y = op->forward(x);
  EXPECT_EQ(y[0][0].item<float>(), 0);
  EXPECT_TRUE(same_bits(y[0][1], (x[0][1] * 2)));
  EXPECT_EQ(y[0][2].item<float>(), 0);
  EXPECT_TRUE(all_finite(op->backward(at::ones({1, 3}, compute), x)));
}

TEST_P(GeGluGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({3, 14});
  const at::Tensor dy = random({3, 7});
  expect_derivative(op->backward(dy, x), numeric_gradient(x, dy, [&] { return op->forward(x); }));
}

at::Tensor angles(int64_t rows, int64_t dim) {
  const at::Tensor a = at::rand({rows, dim / 2}, at::kDouble) * 6;
  return at::cat({a.cos(), a.sin()}, 1).to(at::kFloat);
}

TEST_P(RopeValues, Rotates) {
  for (const int64_t dim : {2, 8, 34, 64, 128})
    for (const int64_t heads : {1, 3}) {
      SCOPED_TRACE(std::to_string(heads) + " heads of " + std::to_string(dim));
      const at::Tensor table = angles(20, dim), positions = at::randint(20, {33}, at::kInt);
      for (const bool back : {false, true}) {
        at::Tensor x = random({33, heads * dim + 5}), wanted = x.clone();
        op->rotate(x, positions, table, heads, back);
        oracle->rotate(wanted, positions, table, heads, back);
        EXPECT_TRUE(near(x, wanted, kUlps * 8));
      }
    }
}

TEST_P(RopeTest, BackUndoesItAndLeavesTheRestAlone) {
  const at::Tensor table = angles(9, 16), positions = at::arange(9, at::kInt);
  const at::Tensor before = random({9, 40});
  at::Tensor x = before.clone();
  op->rotate(x, positions, table, 2, false);
  EXPECT_GT((x - before).narrow(1, 0, 32).abs().max().item<float>(), 0.1);
  EXPECT_TRUE(same_bits(x.narrow(1, 32, 8).contiguous(), before.narrow(1, 32, 8).contiguous()));
  op->rotate(x, positions, table, 2, true);
  EXPECT_TRUE(near(x, before, compute == at::kBFloat16 ? 0.03 : 1e-6));
}

}  // namespace
}  // namespace octavo::engine

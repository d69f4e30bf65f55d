#include <numbers>

#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(Gelu);
OCTAVO_OP_GRADIENT_TESTS(Gelu);

// gelu(x) = x sigmoid(2u). A rounding of the exponent's argument 2u by 2^-24 of itself changes the
// sigmoid's tail by that much, so the relative error grows with |2u|.
struct Parts {
  at::Tensor two_u, sigmoid, two_du;
};
Parts parts_of(const at::Tensor& x) {
  const double c = 2 * std::sqrt(2 / std::numbers::pi);
  const at::Tensor v = exact(x), two_u = c * (v + 0.044715 * v.pow(3));
  return {two_u, two_u.sigmoid(), c * (1 + 3 * 0.044715 * v * v)};
}
constexpr double kUnit = 4 * 0x1p-24;
// 1 + tanh(u) instead of the sigmoid, as libtorch has it, cancels for negative x.
double cancelled(bool by_library) {
  return by_library ? kUnit : 0;
}
constexpr double kTiny = 1e-34;  // below the exponent's clamp the result is as good as zero

// Wide enough that both tails and the clamp of the exponent are met.
at::Tensor inputs(int64_t rows, int64_t width, at::ScalarType compute) {
  return (at::randn({rows, width}) * 3).clamp(-15, 15).to(compute);
}

TEST_P(GeluValues, Forward) {
  for (const auto& [rows, width] : extents()) {
    SCOPED_TRACE(text_of(Extent{rows, width}));
    const at::Tensor x = inputs(rows, width, compute), wanted = oracle->forward(x);
    const at::Tensor slack = kUnit * magnitude(wanted) * (2 + parts_of(x).two_u.abs()) + kTiny;
    EXPECT_TRUE(near(op->forward(x), wanted, slack + cancelled(by_library) * magnitude(x)));
  }
}

TEST_P(GeluValues, Backward) {
  for (const auto& [rows, width] : extents())
    for (const auto mode : kBothModes) {
      SCOPED_TRACE(text_of(Extent{rows, width}));
      const at::Tensor x = inputs(rows, width, compute), before = at::randn({width});
      at::Tensor dy = random({rows, width}), wanted = dy.clone(), dbias = before.clone(),
                 ignored = before.clone();
      const Parts p = parts_of(x);
      // s + x s (1 - s) 2u': the tails as above, and 1 - s cancels for large x.
      const at::Tensor rest = magnitude(x) * p.sigmoid * p.two_du;
      const at::Tensor slack =
          kUnit * magnitude(dy) *
              ((2 + p.two_u.abs()) * (p.sigmoid + rest * (1 - p.sigmoid)) + rest) +
          cancelled(by_library) * magnitude(dy) * (1 + magnitude(x) * p.two_du) + kTiny;
      op->backward(dy, x, dbias, mode);
      oracle->backward(wanted, x, ignored, mode);
      EXPECT_TRUE(near(dy, wanted, slack));
      // The bias's gradient is the sum of what flows on, as it was rounded.
      at::Tensor sums = exact(dy).sum(0);
      if (mode == Accumulate::kAdd) sums += before;
      EXPECT_TRUE(
          near(dbias, sums.to(at::kFloat), kSumSlack * (magnitude(dy).sum(0) + magnitude(before))));
    }
}

TEST_P(GeluTest, KnownValues) {
  const at::Tensor x = at::tensor({0.0, 1e4, -1e4, 1e30, -1e30, -3e38}).to(compute);
  const at::Tensor wanted = at::where(x > 0, x, at::zeros_like(x));
  EXPECT_TRUE(near(op->forward(x), wanted, kTiny));
  at::Tensor dy = at::ones({1, 3}, compute), dbias = at::zeros({3});
  op->backward(dy, x.narrow(0, 0, 3).view({1, 3}), dbias, Accumulate::kAdd);
  EXPECT_TRUE(near(dbias, at::tensor({0.5f, 1.0f, 0.0f}), 1e-6));
}

TEST_P(GeluTest, NanShows) {
  for (const int64_t column : {0, 16}) {
    at::Tensor x = random({2, 17}), dy = random({2, 17}), dbias = at::zeros({17});
    x[1][column] = NAN;
    const at::Tensor y = op->forward(x);
    EXPECT_TRUE(any_not_finite(y[1][column]) && all_finite(y[0]));
    op->backward(dy, x, dbias, Accumulate::kOverwrite);
    EXPECT_TRUE(any_not_finite(dy[1][column]) && any_not_finite(dbias[column]));
    EXPECT_EQ(at::isfinite(dbias).sum().item<int64_t>(), 16);
  }
}

TEST_P(GeluTest, IndependentOfThreads) {
  if (by_library) GTEST_SKIP() << "libtorch's CPU kernels are not; GPUs have no such threads";
  const at::Tensor x = random({100, 767}), dy = random({100, 767});
  expect_independent_of_threads([&] {
    at::Tensor dx = dy.clone(), dbias = at::ones({767});
    op->backward(dx, x, dbias, Accumulate::kAdd);
    return std::vector<at::Tensor>{op->forward(x), dx, dbias};
  });
}

TEST_P(GeluGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({4, 33}, 2);
  const at::Tensor weight = random({4, 33});
  at::Tensor dx = weight.clone(), dbias = at::empty({33});
  op->backward(dx, x, dbias, Accumulate::kOverwrite);
  expect_derivative(dx, numeric_gradient(x, weight, [&] { return op->forward(x); }));
}

}  // namespace
}  // namespace octavo::engine

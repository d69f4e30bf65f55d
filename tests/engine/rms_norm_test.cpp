#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(RmsNorm);
OCTAVO_OP_GRADIENT_TESTS(RmsNorm);

constexpr double kEpsilon = 1e-6;

TEST_P(RmsNormValues, Forward) {
  for (const auto& [rows, width] : extents())
    for (const bool with_delta : {false, true}) {
      SCOPED_TRACE(text_of(Extent{rows, width}) + (with_delta ? ", with delta" : ""));
      const at::Tensor x = random({rows, width}, 2), gamma = at::randn({width});
      const at::Tensor delta = with_delta ? random({rows, width}) : at::Tensor();
      const auto found = op->forward(x, delta, gamma, kEpsilon);
      const auto wanted = oracle->forward(x, delta, gamma, kEpsilon);
      EXPECT_TRUE(near(found.sum, wanted.sum));
      EXPECT_TRUE(near(found.rstd, wanted.rstd, kSumSlack * exact(wanted.rstd)));
      EXPECT_TRUE(near(found.normed, wanted.normed, kSumSlack * magnitude(wanted.normed)));
    }
}

TEST_P(RmsNormValues, Backward) {
  for (const auto& [rows, width] : extents())
    for (const auto mode : kBothModes) {
      const bool with_d_sum = (rows + width) % 3 != 0;
      SCOPED_TRACE(text_of(Extent{rows, width}) + (with_d_sum ? ", with d_sum" : ""));
      const at::Tensor gamma = at::randn({width}), dn = random({rows, width});
      const at::Tensor d_sum = with_d_sum ? random({rows, width}) : at::Tensor();
      const auto saved = oracle->forward(random({rows, width}, 2), {}, gamma, kEpsilon);
      at::Tensor dgamma = at::randn({width}), wanted_dgamma = dgamma.clone();
      const at::Tensor rstd = exact(saved.rstd).unsqueeze(1), hat = magnitude(saved.sum) * rstd,
                       g = magnitude(dn) * magnitude(gamma);
      at::Tensor parts = rstd * (g + hat * (g * hat).mean(1, true));
      if (with_d_sum) parts = parts + magnitude(d_sum);
      const at::Tensor dgamma_parts = (magnitude(dn) * hat).sum(0) + dgamma.abs();
      const at::Tensor dx = op->backward(dn, d_sum, saved, gamma, dgamma, mode);
      const at::Tensor wanted = oracle->backward(dn, d_sum, saved, gamma, wanted_dgamma, mode);
      EXPECT_TRUE(near(dx, wanted, 2 * kSumSlack * parts + between(parts)));
      EXPECT_TRUE(near(dgamma, wanted_dgamma, kSumSlack * dgamma_parts));
      at::Tensor frozen;
      EXPECT_TRUE(same_bits(op->backward(dn, d_sum, saved, gamma, frozen, mode), dx));
    }
}

TEST_P(RmsNormTest, NanShowsInItsRowOnly) {
  for (const float bad : {NAN, INFINITY})
    for (const int64_t column : {0, 126}) {
      at::Tensor x = random({3, 127}), gamma = at::ones({127});
      x[1][column] = bad;
      const auto f = op->forward(x, random({3, 127}), gamma, kEpsilon);
      EXPECT_TRUE(any_not_finite(f.sum[1]) && any_not_finite(f.normed[1]));
      EXPECT_TRUE(all_finite(f.normed[0]) && all_finite(f.normed[2]));
      const auto good = op->forward(random({3, 127}), {}, gamma, kEpsilon);
      at::Tensor dgamma = at::zeros({127});
      const at::Tensor dx = op->backward(x, {}, good, gamma, dgamma, Accumulate::kAdd);
      EXPECT_TRUE(any_not_finite(dx[1]) && any_not_finite(dgamma) && all_finite(dx[0]));
    }
}

TEST_P(RmsNormTest, IndependentOfThreads) {
  const at::Tensor x = random({100, 127}), delta = random({100, 127}), dn = random({100, 127}),
                   gamma = at::randn({127});
  expect_independent_of_threads([&] {
    const auto f = op->forward(x, delta, gamma, kEpsilon);
    at::Tensor dgamma = at::ones({127});
    const at::Tensor dx = op->backward(dn, x, f, gamma, dgamma, Accumulate::kAdd);
    return std::vector<at::Tensor>{f.sum, f.normed, f.rstd, dx, dgamma};
  });
}

TEST_P(RmsNormGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({3, 17}), delta = random({3, 17}), gamma = at::randn({17});
  const at::Tensor dn = random({3, 17}), d_sum = random({3, 17}), weight = at::stack({dn, d_sum});
  const auto forward = [&] {
    const auto f = op->forward(x, delta, gamma, kEpsilon);
    return at::stack({f.normed, f.sum});
  };
  const auto saved = op->forward(x, delta, gamma, kEpsilon);
  at::Tensor dgamma = at::empty({17});
  const at::Tensor dx = op->backward(dn, d_sum, saved, gamma, dgamma, Accumulate::kOverwrite);
  expect_derivative(dx, numeric_gradient(x, weight, forward));
  expect_derivative(dx, numeric_gradient(delta, weight, forward));
  expect_derivative(dgamma, numeric_gradient(gamma, weight, forward));
}

}  // namespace
}  // namespace octavo::engine

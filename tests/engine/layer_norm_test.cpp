#include "engine/harness.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(LayerNorm);
OCTAVO_OP_GRADIENT_TESTS(LayerNorm);

constexpr double kEps = 1e-5;

// x_hat before it is scaled by gamma, and the magnitudes it came from (FP64).
struct Normed {
  at::Tensor mean, rstd, hat, parts;
};
Normed normed_of(const LayerNorm::Forward& f) {
  Normed n;
  n.mean = exact(f.mean).unsqueeze(1);
  n.rstd = exact(f.rstd).unsqueeze(1);
  n.hat = (exact(f.sum) - n.mean) * n.rstd;
  n.parts = (magnitude(f.sum) + n.mean.abs()) * n.rstd;
  return n;
}

TEST_P(LayerNormValues, Forward) {
  for (const auto& [rows, width] : extents())
    for (const bool with_delta : {false, true}) {
      SCOPED_TRACE(text_of(Extent{rows, width}) + (with_delta ? ", with delta" : ""));
      const at::Tensor x = random({rows, width}, 2) + 0.5, gamma = at::randn({width}),
                       beta = at::randn({width});
      const at::Tensor delta = with_delta ? random({rows, width}) : at::Tensor();
      const auto found = op->forward(x, delta, gamma, beta, kEps);
      const auto wanted = oracle->forward(x, delta, gamma, beta, kEps);
      const Normed n = normed_of(wanted);
      EXPECT_TRUE(near(found.sum, wanted.sum));
      EXPECT_TRUE(near(found.mean, wanted.mean, kSumSlack * magnitude(wanted.sum).mean(1)));
      // The variance is a sum of squares around a mean that is itself rounded.
      EXPECT_TRUE(near(found.rstd, wanted.rstd, 2 * kSumSlack * exact(wanted.rstd)));
      EXPECT_TRUE(near(found.normed, wanted.normed,
                       2 * kSumSlack * (n.parts * magnitude(gamma) + magnitude(beta))));
    }
}

TEST_P(LayerNormValues, Backward) {
  for (const auto& [rows, width] : extents())
    for (const auto mode : kBothModes) {
      const bool with_d_sum = (rows + width) % 3 != 0;
      SCOPED_TRACE(text_of(Extent{rows, width}) + (with_d_sum ? ", with d_sum" : ""));
      const at::Tensor gamma = at::randn({width}), dn = random({rows, width});
      const at::Tensor d_sum = with_d_sum ? random({rows, width}) : at::Tensor();
      const auto saved =
          oracle->forward(random({rows, width}, 2), at::Tensor(), gamma, gamma, kEps);
      at::Tensor dgamma = at::randn({width}), dbeta = at::randn({width});
      at::Tensor wanted_dgamma = dgamma.clone(), wanted_dbeta = dbeta.clone();
      const Normed n = normed_of(saved);
      const at::Tensor g = magnitude(dn) * magnitude(gamma);
      at::Tensor parts =
          n.rstd * (g + g.mean(1, true) + n.hat.abs() * (g * n.hat.abs()).mean(1, true));
      if (with_d_sum) parts = parts + magnitude(d_sum);
      const at::Tensor dgamma_parts = (magnitude(dn) * n.parts).sum(0) + dgamma.abs(),
                       dbeta_parts = magnitude(dn).sum(0) + dbeta.abs();
      const at::Tensor dx = op->backward(dn, d_sum, saved, gamma, dgamma, dbeta, mode);
      const at::Tensor wanted =
          oracle->backward(dn, d_sum, saved, gamma, wanted_dgamma, wanted_dbeta, mode);
      EXPECT_TRUE(near(dx, wanted, 2 * kSumSlack * parts + between(parts)));
      EXPECT_TRUE(near(dgamma, wanted_dgamma, kSumSlack * dgamma_parts));
      EXPECT_TRUE(near(dbeta, wanted_dbeta, kSumSlack * dbeta_parts));
    }
}

TEST_P(LayerNormTest, ZeroRowsGiveBeta) {
  const at::Tensor x = at::zeros({3, 127}, compute), gamma = at::randn({127}),
                   beta = at::randn({127});
  const auto f = op->forward(x, at::Tensor(), gamma, beta, kEps);
  EXPECT_TRUE(same_bits(f.normed, beta.to(compute).expand({3, 127}).contiguous()));
  EXPECT_TRUE(near(f.rstd, at::full({3}, 1 / std::sqrt(kEps), at::kFloat), 1e-4));
}

TEST_P(LayerNormTest, NanShowsInItsRowOnly) {
  for (const float bad : {NAN, INFINITY})
    for (const int64_t column : {0, 126}) {
      at::Tensor x = random({3, 127}), gamma = at::ones({127});
      x[1][column] = bad;
      const auto f = op->forward(x, random({3, 127}), gamma, gamma, kEps);
      EXPECT_TRUE(any_not_finite(f.sum[1]));
      EXPECT_FALSE(at::isfinite(f.normed[1]).any().item<bool>());
      EXPECT_TRUE(all_finite(f.normed[0]) && all_finite(f.normed[2]));
      const auto good = op->forward(random({3, 127}), at::Tensor(), gamma, gamma, kEps);
      at::Tensor dgamma = at::zeros({127}), dbeta = at::zeros({127});
      const at::Tensor dx =
          op->backward(x, at::Tensor(), good, gamma, dgamma, dbeta, Accumulate::kAdd);
      EXPECT_FALSE(at::isfinite(dx[1]).any().item<bool>());
      EXPECT_TRUE(any_not_finite(dgamma) && any_not_finite(dbeta) && all_finite(dx[0]));
    }
}

TEST_P(LayerNormTest, IndependentOfThreads) {
  if (by_library) GTEST_SKIP() << "libtorch's CPU kernels are not; GPUs have no such threads";
  const at::Tensor x = random({100, 127}), delta = random({100, 127}), dn = random({100, 127}),
                   gamma = at::randn({127});
  expect_independent_of_threads([&] {
    const auto f = op->forward(x, delta, gamma, gamma, kEps);
    at::Tensor dgamma = at::ones({127}), dbeta = at::ones({127});
    const at::Tensor dx = op->backward(dn, x, f, gamma, dgamma, dbeta, Accumulate::kAdd);
    return std::vector<at::Tensor>{f.sum, f.normed, f.mean, f.rstd, dx, dgamma, dbeta};
  });
}

TEST_P(LayerNormGradient, MatchesFiniteDifferences) {
  at::Tensor x = random({3, 17}), delta = random({3, 17}), gamma = at::randn({17}),
             beta = at::randn({17});
  const at::Tensor dn = random({3, 17}), d_sum = random({3, 17});
  // Both results at once: the norm weighted by dn, the sum by d_sum.
  const auto forward = [&] {
    const auto f = op->forward(x, delta, gamma, beta, kEps);
    return at::stack({f.normed, f.sum});
  };
  const at::Tensor weight = at::stack({dn, d_sum});
  const auto saved = op->forward(x, delta, gamma, beta, kEps);
  at::Tensor dgamma = at::empty({17}), dbeta = at::empty({17});
  const at::Tensor dx =
      op->backward(dn, d_sum, saved, gamma, dgamma, dbeta, Accumulate::kOverwrite);
  expect_derivative(dx, numeric_gradient(x, weight, forward));
  expect_derivative(dx, numeric_gradient(delta, weight, forward));
  expect_derivative(dgamma, numeric_gradient(gamma, weight, forward));
  expect_derivative(dbeta, numeric_gradient(beta, weight, forward));
}

}  // namespace
}  // namespace octavo::engine

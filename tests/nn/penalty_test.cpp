#include "nn/penalty.h"

#include "nn/oracle.h"

namespace octavo::nn {
namespace {

class Penalties : public NnTest {};

constexpr PenaltyKind kKinds[] = {PenaltyKind::kActivationL2, PenaltyKind::kKurtosis};

// The penalty's value by the formula, in FP64.
double value_of(PenaltyKind kind, const at::Tensor& x) {
  const at::Tensor v = x.detach().to(at::kDouble);
  if (kind == PenaltyKind::kActivationL2) return v.square().mean().item<double>();
  return (v.pow(4).mean(1) / v.square().mean(1).square()).mean().item<double>();
}

TEST_F(Penalties, ValueAndUntouchedForward) {
  for (const auto kind : kKinds) {
    const at::Tensor x = leaf({33, 17});
    Penalty penalty{.kind = kind, .gradient_scale = 0.5, .total = {}};
    const at::Tensor y = penalize(penalize(x, penalty, 0.25), penalty, 0.75);
    EXPECT_TRUE(y.equal(x));
    EXPECT_NEAR(penalty.total.item<double>(), value_of(kind, x), 1e-5);
  }
}

TEST_F(Penalties, GradientMatchesFiniteDifferences) {
  for (const auto kind : kKinds) {
    const at::Tensor x = leaf({5, 7}), dy = at::randn({5, 7});
    Penalty penalty{.kind = kind, .gradient_scale = 3, .total = {}};
    backward(penalize(x, penalty, 0.5), dy);
    at::Tensor probe = x.detach().to(at::kDouble).clone(), wanted = at::empty_like(probe);
    double* values = probe.mutable_data_ptr<double>();
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < probe.numel(); ++i) {
      const double here = values[i];
      values[i] = here + kStep;
      const double above = value_of(kind, probe);
      values[i] = here - kStep;
      const double below = value_of(kind, probe);
      values[i] = here;
      wanted.flatten()[i] = (above - below) / (2 * kStep) * 3 * 0.5;
    }
    EXPECT_TRUE(close(x.grad(), wanted + dy));
  }
}

TEST_F(Penalties, KurtosisOfAGaussianAndOfAnOutlier) {
  Penalty gaussian{.kind = PenaltyKind::kKurtosis, .gradient_scale = 1, .total = {}},
      outlier = gaussian;
  penalize(leaf({200, 1000}), gaussian, 1);
  EXPECT_NEAR(gaussian.total.item<double>(), 3, 0.05);
  at::Tensor spike = at::zeros({1, 100});
  spike[0][7] = 50;
  penalize(spike.set_requires_grad(true), outlier, 1);
  EXPECT_NEAR(outlier.total.item<double>(), 100, 1e-3);
}

// Rows of zeros have no kurtosis; they must not make a NaN.
TEST_F(Penalties, ZerosStayFinite) {
  for (const auto kind : kKinds) {
    const at::Tensor x = at::zeros({3, 8}).set_requires_grad(true);
    Penalty penalty{.kind = kind, .gradient_scale = 1, .total = {}};
    backward(penalize(x, penalty, 1), at::zeros({3, 8}));
    EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
    EXPECT_EQ(penalty.total.item<double>(), 0);
  }
}

}  // namespace
}  // namespace octavo::nn

#pragma once
// Layers against plain ATen autograd in FP64: the same values go in, the same must come out, up to
// the rounding of FP32.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "engine/engine.h"
#include "nn/param.h"

namespace octavo::nn {

// FP32 sums of up to a few hundred terms of size 1; relative to the largest value.
constexpr double kTolerance = 1e-5;

inline testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected,
                                      double tolerance = kTolerance) {
  if (!actual.defined() || !expected.defined()) return testing::AssertionFailure() << "undefined";
  if (actual.sizes() != expected.sizes())
    return testing::AssertionFailure() << actual.sizes() << " instead of " << expected.sizes();
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double worst = (a - e).abs().max().item<double>(),
               scale = std::max(1e-3, e.abs().max().item<double>());
  if (worst <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << worst << " where values reach " << scale;
}

// A leaf of the oracle's graph with the same values.
inline at::Tensor twin(const at::Tensor& t) {
  return t.detach().to(at::kDouble).clone().set_requires_grad(true);
}
inline at::Tensor twin(const ParamPtr& p) {
  return twin(p->master);
}

inline at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape).set_requires_grad(true);
}

inline void backward(const at::Tensor& y, const at::Tensor& dy) {
  // A copy, because a node may overwrite the gradient it is given.
  torch::autograd::backward({y}, {dy.to(y.scalar_type()).clone()});
}

class NnTest : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(11); }
  ParamPtr param(at::IntArrayRef shape) {
    const at::NoGradGuard no_grad;
    auto p = make_param("p", shape, at::kFloat, shape.size() > 1, at::kCPU);
    p->master.normal_();
    p->grad.fill_(NAN);  // a fresh gradient must be overwritten
    return p;
  }
  engine::Engine engine{{at::kCPU, at::kFloat, false}};
};

}  // namespace octavo::nn

#pragma once
// A residual addition with the norm that follows it, both kinds, without autograd: the pieces that
// the nodes of layers.cpp and blocks.cpp are made of.

#include <ATen/core/Tensor.h>

#include "engine/engine.h"
#include "nn/param.h"

namespace octavo::nn {

struct Norm {
  ParamPtr gamma, beta;  // beta null: an RMS norm
  double eps = 1e-5;
  bool adds_one = false;  // the scale is 1 + gamma
};

struct NormResult {
  at::Tensor sum;         // x + delta
  at::Tensor normed;      // norm(sum)
  at::Tensor mean, rstd;  // for the backward pass; an RMS norm has no mean
};

// delta may be undefined.
NormResult norm_forward(const engine::Engine& engine, const Norm& norm, const at::Tensor& x,
                        const at::Tensor& delta);
// The gradient of x, and of delta; d_sum may be undefined. Of the result `normed` is not read.
at::Tensor norm_backward(const engine::Engine& engine, const Norm& norm, const at::Tensor& d_normed,
                         const at::Tensor& d_sum, const NormResult& forward);

}  // namespace octavo::nn

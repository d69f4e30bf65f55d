#pragma once
// The differentiable pieces of a model, as functions over an engine. Each is one node of autograd's
// graph; gradients of parameters go straight into Param::grad. Shapes as in engine/ops.h:
// activations are [T, C], T = batch * length.

#include <ATen/core/Tensor.h>

#include <utility>

#include "engine/engine.h"
#include "nn/linear.h"
#include "nn/param.h"

namespace octavo::nn {

// x[T,C] = tokens[ids] + positions
at::Tensor embed(const Engine& engine, const at::Tensor& ids, const ParamPtr& tokens,
                 const ParamPtr& positions, int64_t length);

// y = x w^T + b
at::Tensor linear(const Engine& engine, const at::Tensor& x, const LinearPtr& layer);

// gelu(x w^T + b), with the bias gradient taken in GELU's backward pass; the layer has a bias.
at::Tensor linear_gelu(const Engine& engine, const at::Tensor& x, const LinearPtr& layer);

// {x + delta, norm(x + delta)}; delta may be undefined.
std::pair<at::Tensor, at::Tensor> add_norm(const Engine& engine, const at::Tensor& x,
                                           const at::Tensor& delta, const ParamPtr& gamma,
                                           const ParamPtr& beta, double eps);

// Causal self-attention over packed rows of q, k, v.
at::Tensor attention(const Engine& engine, const at::Tensor& qkv, int64_t batch, int64_t heads);

}  // namespace octavo::nn

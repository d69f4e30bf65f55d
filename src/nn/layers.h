#pragma once
// The differentiable pieces of a model, as functions over an engine. Each is one node of autograd's
// graph; gradients of parameters go straight into Param::grad. Shapes as in engine/ops.h:
// activations are [T, C], T = batch * length.

#include <ATen/core/Tensor.h>

#include <utility>

#include "engine/engine.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/param.h"
#include "nn/rope.h"
#include "nn/sequences.h"

namespace octavo::nn {

// x[T,C] = tokens[ids] + positions; positions may be null.
at::Tensor embed(const Engine& engine, const Tokens& input, const ParamPtr& tokens,
                 const ParamPtr& positions);

// y = x w^T + b
at::Tensor linear(const Engine& engine, const at::Tensor& x, const LinearPtr& layer);

// gelu(x w^T + b), with the bias gradient taken in GELU's backward pass; the layer has a bias.
at::Tensor linear_gelu(const Engine& engine, const at::Tensor& x, const LinearPtr& layer);

// {x + delta, norm(x + delta)}; delta may be undefined.
std::pair<at::Tensor, at::Tensor> add_norm(const Engine& engine, const at::Tensor& x,
                                           const at::Tensor& delta, const Norm& norm);

// silu(gate) * up of x = {gate, up} side by side.
at::Tensor swiglu(const Engine& engine, const at::Tensor& x);

struct AttentionHeads {
  int64_t heads = 1, kv_heads = 1, dim = 1;
  RopeTable* rope = nullptr;  // null: positions are not rotated
  int64_t layer = 0;          // of the key-value cache
  int64_t window = 0;         // tokens that a token sees, itself included; 0: all before it
  double scale = 0;           // of the scores; 0: 1/sqrt(dim)
};

// RMS norms of the queries and keys in packed rows of q, k, v: of each head when a norm is as wide
// as one, else of all of them together.
at::Tensor qk_norm(const Engine& engine, const at::Tensor& qkv, const AttentionHeads& heads,
                   const Norm& query_norm, const Norm& key_norm);

// Causal self-attention of each sequence over packed rows of q, k, v, which are rotated in place
// first: qkv is made for this call.
at::Tensor attention(const Engine& engine, const at::Tensor& qkv, const Tokens& tokens,
                     const AttentionHeads& heads);

}  // namespace octavo::nn

#pragma once
// A mixture of experts in the place of an MLP. The router is in FP32: softmax over its logits, the
// `active` largest, made to add up to 1 when the model says so. No token is dropped: rows are
// sorted by expert, in the order of tokens, and each expert is an MLP (blocks.h) over its own rows;
// of each token the results are added up in FP32, in the order of its weights, and rounded once. So
// the bits are those of a loop over experts (with as many rows, see below), and depend on nothing
// else.
//
// How many rows an expert has is data, which the host must know: on a GPU each layer waits for it,
// and no pass with experts can be a CUDA graph. Experts have the GEMMs that every linear layer has,
// in BF16 or by its FP8 recipe, as groups of rows (engine/groups.h): on a CPU several at once, on a
// GPU one after the other. `Dispatch` is what a GPU's grouped GEMM, or ranks that have some of the
// experts each, would begin with.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "nn/blocks.h"
#include "nn/param.h"
#include "nn/routing.h"

namespace octavo::nn {

struct Mixture {
  ParamPtr router;  // [experts, C]; null: no mixture
  std::vector<Mlp> experts;
  int64_t active = 0;         // experts of a token
  bool renormalized = false;  // their weights add up to 1
  int64_t layer = 0;          // among those with experts: of Routing
};

// Which rows each expert reads. Tokens choose `active` experts each: choice t * active + j.
struct Dispatch {
  at::Tensor tokens;            // [choices] int64: the token of each row, rows sorted by expert
  at::Tensor order;             // [choices] int64: the choice that a row is
  at::Tensor places;            // [choices] int64: the row that a choice is
  at::Tensor counts;            // [experts] int64, on the device
  std::vector<int64_t> bounds;  // expert e has the rows bounds[e] to bounds[e + 1]
};
// chosen[T, active] int64. Waits for the device. The fake one computes nothing and so has no
// choices: there every expert is given as many rows as with even use.
Dispatch dispatch(const at::Tensor& chosen, int64_t experts);

// y[T, C] of x[T, C].
at::Tensor mixture(const Engine& engine, const at::Tensor& x, const Mixture& mixture,
                   Routing& routing);

}  // namespace octavo::nn

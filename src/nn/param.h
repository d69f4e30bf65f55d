#pragma once
// A parameter: the FP32 master that the optimizer owns, the copy that layers compute with, and the
// FP32 gradient. Layers add to `grad` themselves (autograd sees an undefined gradient), so that
// products accumulate in FP32.

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <string>
#include <vector>

#include "engine/ops.h"

namespace octavo::nn {

struct Param : torch::CustomClassHolder {
  std::string name;        // "h.0.attn.c_attn.weight": the architecture's Hugging Face name
  at::Tensor master;       // FP32
  at::Tensor compute;      // BF16 copy of a matrix; otherwise the master itself
  at::Tensor grad;         // FP32, shape of master
  bool decays = false;     // takes weight decay (matrices do, vectors do not)
  uint64_t version = 0;    // counts the changes of the weight: what was made of it is compared with
                           // this
  bool grad_fresh = true;  // nothing was added in this step yet: the first write may overwrite

  // How the next write to grad must be done; after it the gradient is no longer fresh.
  engine::Accumulate next_write() {
    const bool add = !grad_fresh;
    grad_fresh = false;
    return add ? engine::Accumulate::kAdd : engine::Accumulate::kOverwrite;
  }
  // For gradients that touch only some rows: zeroes grad if this is the first write of the step.
  void zero_if_fresh() {
    if (grad_fresh) grad.zero_();
    grad_fresh = false;
  }
};

using ParamPtr = c10::intrusive_ptr<Param>;

// Every parameter of a model, in a fixed order.
using ParamList = std::vector<ParamPtr>;

// `compute` is BF16 or FP32. A matrix in BF16 mode gets a BF16 copy; everything else computes in
// FP32.
ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device);

// Master weights changed from outside (initialisation, loading): makes the compute copies again.
void refresh_compute(const ParamList& params);

}  // namespace octavo::nn

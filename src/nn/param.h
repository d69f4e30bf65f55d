#pragma once
// A parameter: the master that the optimizer owns, the copy that layers compute with, and the
// gradient. Layers add to `grad` themselves (autograd sees an undefined gradient), so that products
// accumulate in FP32.

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <string>
#include <vector>

#include "engine/ops.h"

namespace octavo::nn {

struct Param : torch::CustomClassHolder {
  std::string name;    // "h.0.attn.c_attn.weight": the architecture's Hugging Face name
  at::Tensor master;   // FP32; of a matrix as Storage says
  at::Tensor compute;  // BF16 copy of a matrix with an FP32 master; otherwise the master itself
  at::Tensor grad;     // shape of master, in grad_type; undefined when frozen or given back
  at::ScalarType grad_type = at::kFloat;  // FP32; of a matrix as Storage says
  bool trainable = true;                  // false: frozen
  bool decays = false;                    // takes weight decay (matrices do, vectors do not)
  uint64_t version = 0;    // counts the changes of the weight: what was made of it is compared with
                           // this
  bool grad_fresh = true;  // nothing was added in this step yet: the first write may overwrite

  // How the next write to grad must be done; after it the gradient is no longer fresh. Gives grad
  // its memory when it has none, so pass `grad` by reference or after this.
  engine::Accumulate next_write() {
    if (!grad.defined()) allocate_grad();
    const bool add = !grad_fresh;
    grad_fresh = false;
    return add ? engine::Accumulate::kAdd : engine::Accumulate::kOverwrite;
  }
  // For gradients that touch only some rows: zeroes grad if this is the first write of the step.
  void zero_if_fresh() {
    if (!grad.defined()) allocate_grad();
    if (grad_fresh) grad.zero_();
    grad_fresh = false;
  }
  // The gradient was used: the next write overwrites it. A BF16 gradient's memory is given back
  // until then, so that the next forward pass has it for activations.
  void use_up_gradient() {
    grad_fresh = true;
    if (grad_type != at::kFloat) grad.reset();
  }
  void allocate_grad();

  // Frozen and kept in FP8 (pack()): E4M3 codes and the decode factors of 128x128 blocks; master
  // and compute are undefined then.
  at::Tensor codes, scales;
  at::IntArrayRef sizes() const { return codes.defined() ? codes.sizes() : master.sizes(); }
  int64_t count() const { return c10::multiply_integers(sizes()); }
  at::Tensor weights() const;  // compute, or decoded for the moment
  void pack();                 // of a frozen matrix in BF16
};

using ParamPtr = c10::intrusive_ptr<Param>;

// Every parameter of a model, in a fixed order.
using ParamList = std::vector<ParamPtr>;

int64_t count_of(const ParamList& params);  // numbers in all of them

// How the matrices of a model are kept where the compute dtype is BF16. Vectors are FP32, with a
// BF16 copy on GPUs.
struct Storage {
  at::ScalarType master = at::kFloat;    // FP32; or BF16: one tensor, rounded stochastically
  at::ScalarType gradient = at::kFloat;  // FP32 or BF16
  bool trainable = true;  // false: one tensor in the compute dtype, no gradient, no optimizer state
};

// `compute` is BF16 or FP32. A matrix in BF16 mode gets a BF16 copy, and on a GPU a vector does.
ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device, const Storage& storage = {});

// Master weights changed from outside (initialisation, loading): makes the compute copies again.
void refresh_compute(const ParamList& params);

}  // namespace octavo::nn

#pragma once
// A parameter: the master that the optimizer owns, the copy that layers compute with, and the
// gradient. Layers add to `grad` themselves (autograd sees an undefined gradient), so that GEMMs
// accumulate in FP32.

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/ops.h"

namespace octavo::nn {

class WeightGatherer;

struct Param : torch::CustomClassHolder {
  std::string name;    // "h.0.attn.c_attn.weight": the architecture's Hugging Face name
  at::Tensor master;   // FP32; of a matrix as Storage says; when it is spread, this rank's rows
  at::Tensor compute;  // BF16 copy of a matrix with an FP32 master; otherwise the master itself;
                       // always whole; undefined while the weights are on other ranks
  at::Tensor leaf;     // empty: connects autograd's graph, and holds no memory that may go
  at::Tensor grad;     // whole, in grad_type; undefined when frozen or given back
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
  void consume_gradient() {
    grad_fresh = own_grad_fresh = true;
    if (grad_type != at::kFloat) release_grad();
  }
  void allocate_grad();
  void release_grad() {
    grad.reset();
    padded_grad.reset();
  }

  // Spread over the ranks of a group (Storage::Shards): rank r keeps the rows [r * chunk, (r + 1) *
  // chunk) as far as there are so many. 0: whole on every rank.
  int64_t chunk = 0;
  int64_t first_row = 0;  // of this rank's part in the whole
  int64_t shard_count = 1;
  // With padding behind the last row, so that every rank's part has `chunk` rows.
  at::Tensor padded;             // compute is its first rows
  at::Tensor own;                // this rank's part in the compute dtype [chunk, C]
  at::Tensor padded_grad;        // grad is its first rows
  at::Tensor own_grad;           // this rank's part of the sum over ranks [chunk, C]
  bool own_grad_fresh = true;    // nothing was added to it in this step yet
  bool spreads_masters = false;  // the master has this rank's rows alone
  // What the optimizer reads and writes, rows as the master has them.
  bool has_gradient() const { return own_grad.defined() ? !own_grad_fresh : !grad_fresh; }
  at::Tensor master_grad() const;
  at::Tensor master_copy() const;  // undefined when the master is what layers compute with
  // The rows that count for this rank in a sum over ranks.
  at::Tensor counted_grad() const;
  bool counts_here = true;  // false: whole, and the group's first rank counts it
  // Values for the rows from `first` of the whole; of a spread master those that are here.
  void copy_rows(const at::Tensor& values, int64_t first);

  // Who brings the weights before they are used and takes them away after; null: they stay.
  WeightGatherer* gatherer = nullptr;
  int64_t unit = 0;  // of the weights that come and go together, in the order of the forward pass

  // Frozen and kept in FP8 (pack()): E4M3 codes and the decode factors of 128x128 blocks; master
  // and compute are undefined then, but while fill_masters() has them on the host.
  at::Tensor codes, scales;
  at::IntArrayRef sizes() const { return sizes_; }  // of the whole
  int64_t count() const { return c10::multiply_integers(sizes()); }
  at::Tensor weights() const;  // compute, or decoded for the moment
  void pack();                 // of a frozen matrix in BF16

  std::vector<int64_t> sizes_;
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
  bool packed = false;    // frozen matrices are codes (Param::pack()) from the beginning
  // The rows of matrices are spread over `count` ranks, of which this is number `index`.
  struct Shards {
    int count = 1, index = 0;
    bool masters = false;    // and moments: each rank keeps and updates its own
    bool gradients = false;  // each rank keeps the sum of its own
    bool weights = false;    // come when they are needed
  } shards;
};

// `compute` is BF16 or FP32. A matrix in BF16 mode gets a BF16 copy, and on a GPU a vector does.
ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device, const Storage& storage = {});

// Calls fill(param) for each, to write its master, and makes the compute copies. A packed one has a
// master for that long alone, on the host: the device never holds the model in BF16.
void fill_masters(const ParamList& params, const std::function<void(Param&)>& fill);

// Master weights changed from outside (initialisation, loading): makes the compute copies again.
void refresh_compute(const ParamList& params);

}  // namespace octavo::nn

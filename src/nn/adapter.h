#pragma once
// Low-rank adapters (LoRA). A frozen layer y = x w^T gets y += scale (drop(x) a^T) b^T for some of
// its rows; a[rank, I] and b[rows, rank] are trained, always in the compute dtype. Projections that
// are one matrix here (qkv_proj) have an adapter for each of their parts (q_proj, v_proj).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nn/param.h"

namespace octavo::nn {

struct Linear;

struct Adapter {
  std::string module;  // "model.layers.0.self_attn.q_proj": its Hugging Face name
  int64_t first_row = 0, rows = 0;
  ParamPtr a, b;
};

// What the adapters of a model share.
struct AdapterShared {
  double scale = 1;
  double dropout = 0;
  uint64_t seed = 0;
  // The number of this pass's first token in the order of all that are trained on. Which inputs are
  // dropped depends on it: each rank drops its own, any number of ranks the same of a token, and a
  // block that runs again in the same pass the same. Nothing is dropped outside of training.
  uint64_t first_token = 0;
  bool training = false;
};

// Adds the adapters' part to y. `kept`, when not null, receives what adapters_backward needs.
void adapters_forward(const engine::Engine& engine, const Linear& layer, const at::Tensor& x,
                      at::Tensor& y, std::vector<at::Tensor>* kept);
// Adds to the adapters' gradients and, when dx is defined, to dx.
void adapters_backward(const engine::Engine& engine, const Linear& layer, const at::Tensor& dy,
                       const std::vector<at::Tensor>& kept, at::Tensor& dx);

}  // namespace octavo::nn

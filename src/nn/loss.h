#pragma once
// The language-model head and its loss in one node. Logits exist for `chunk_rows` tokens at a time,
// in the compute dtype, and become their own gradient in place; the head's GEMMs of the backward
// pass run at once. So the whole [T, V] matrix is never held, and never copied to FP32.

#include <ATen/core/Tensor.h>

#include "engine/engine.h"
#include "nn/param.h"

namespace octavo::nn {

struct LossOptions {
  int64_t classes = 0;        // real vocabulary; the weight's rows beyond are padding
  double gradient_scale = 1;  // of every token's gradient: 1 / (tokens of the whole step)
  double z_weight = 0;        // z-loss: z_weight * logsumexp^2 per token
  int64_t chunk_rows = 0;     // 0: as the device likes it
  bool want_gradient = true;
  bool want_each = false;  // Loss::each
};

struct Loss {
  at::Tensor
      root;  // call backward() on it; its value is of no interest. Undefined without gradients.
  at::Tensor sums;  // FP64 [2] on the device: sum of the tokens' loss, sum of logsumexp^2
  at::Tensor each;  // FP64 [T,2] on the device, when wanted: of each token what `sums` are sums of
};

// x[T,C] final hidden states, weight[V,C], targets[T] int32 (negative = ignored).
Loss head_loss(const engine::Engine& engine, const at::Tensor& x, const ParamPtr& weight,
               const at::Tensor& targets, const LossOptions& options);

// Logits of a few rows, FP32 [T, classes]: for generation and tests.
at::Tensor head_logits(const engine::Engine& engine, const at::Tensor& x, const ParamPtr& weight,
                       int64_t classes);

}  // namespace octavo::nn

#pragma once
// Activation checkpointing: a block keeps its inputs alone, and runs again when its gradient is
// due.

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace octavo::nn {

// A block of the residual stream: {x, delta} to {x, delta}. delta may be undefined on the way in.
using BlockFunction =
    std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor& x, const at::Tensor& delta)>;

// block(x, delta). It must compute the same bits when it runs again.
std::pair<at::Tensor, at::Tensor> recomputed(const BlockFunction& block, const at::Tensor& x,
                                             const at::Tensor& delta);

}  // namespace octavo::nn

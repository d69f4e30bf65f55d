#pragma once
// Weights that are not always on this device: units of them come before a block runs and go when it
// is done, and a block's gradients are complete when its backward pass is. A unit is what comes and
// goes together: the embedding is 0, the blocks follow, then a head of its own.

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "nn/param.h"
#include "nn/recompute.h"

namespace octavo::nn {

class WeightGatherer {
 public:
  virtual ~WeightGatherer() = default;
  virtual void before_forward(int64_t unit) = 0;
  virtual void after_forward(int64_t unit) = 0;
  virtual void before_backward(int64_t unit) = 0;
  // Its weights are not needed any more, and nothing will be added to its gradients.
  virtual void after_backward(int64_t unit) = 0;
};

// block(x, delta), with the weights of `unit` there while it runs, forward and backward.
std::pair<at::Tensor, at::Tensor> with_unit(WeightGatherer& gatherer, int64_t unit,
                                            const BlockFunction& block, const at::Tensor& x,
                                            const at::Tensor& delta);

// For one use of one weight outside of blocks.
class GatherScope {
 public:
  explicit GatherScope(const Param& weight) : weight_(weight) {
    if (weight_.gatherer != nullptr) weight_.gatherer->before_forward(weight_.unit);
  }
  ~GatherScope() {
    if (weight_.gatherer != nullptr) weight_.gatherer->after_forward(weight_.unit);
  }
  GatherScope(const GatherScope&) = delete;
  GatherScope& operator=(const GatherScope&) = delete;

 private:
  const Param& weight_;
};

}  // namespace octavo::nn

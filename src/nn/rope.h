#pragma once
// Rotary positions: the angles of a model, as a table that grows with the longest sequence seen.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model_config/model_config.h"

namespace octavo::nn {

class RopeTable {
 public:
  RopeTable(int64_t dim, const model_config::Rope& rope);
  // [P, dim] FP32 with P > last_position: cosines, then sines.
  const at::Tensor& for_length(int64_t length, at::Device device);
  // What rotated queries times rotated keys are to be multiplied with.
  double score_factor() const { return score_factor_; }

 private:
  at::Tensor frequencies_;  // [dim / 2] FP32
  at::Tensor table_;
  double score_factor_ = 1;
};

}  // namespace octavo::nn

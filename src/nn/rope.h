#pragma once
// Rotary positions: the angles of a model, as a table that grows with the longest sequence seen.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace octavo::nn {

struct RopeScaling {  // of Llama 3.1: long wavelengths are stretched by `factor`
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;
  bool operator==(const RopeScaling&) const = default;
};

class RopeTable {
 public:
  RopeTable(int64_t dim, double theta, std::optional<RopeScaling> scaling);
  // [P, dim] FP32 with P > last_position: cosines, then sines.
  const at::Tensor& for_length(int64_t length, at::Device device);

 private:
  at::Tensor frequencies_;  // [dim / 2] FP32
  at::Tensor table_;
};

}  // namespace octavo::nn

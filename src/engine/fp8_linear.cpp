#include "engine/fp8_linear.h"

#include <ATen/ATen.h>

#include "fp8/scaling.h"

namespace octavo::engine {

void update_factors_in_memory(at::Tensor& history, at::Tensor& factors,
                              const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo,
                              int64_t margin, bool recompute) {
  const auto floats = [](at::Tensor& t) {
    return std::span(t.mutable_data_ptr<float>(), static_cast<size_t>(t.numel()));
  };
  fp8::update_factors({.amax = floats(history),
                       .factors = floats(factors),
                       .format = formats,
                       .length = history.size(0)},
                      algo, margin, recompute);
}

}  // namespace octavo::engine

#include "nn/param.h"

#include <ATen/ATen.h>

namespace octavo::nn {

ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device) {
  auto param = c10::make_intrusive<Param>();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  param->name = std::move(name);
  param->decays = decays;
  param->master = at::zeros(shape, options);
  param->grad = at::empty(shape, options);
  const bool is_matrix = shape.size() >= 2;
  param->compute =
      is_matrix && compute != at::kFloat ? at::zeros(shape, options.dtype(compute)) : param->master;
  // A leaf that asks for gradients keeps autograd's graph connected down to the embedding.
  param->compute.set_requires_grad(true);
  return param;
}

void refresh_compute(const ParamList& params) {
  const at::NoGradGuard no_grad;
  for (const auto& p : params) {
    if (!p->compute.is_same(p->master)) p->compute.copy_(p->master);
    ++p->version;
  }
}

}  // namespace octavo::nn

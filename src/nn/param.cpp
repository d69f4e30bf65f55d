#include "nn/param.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/fp8_weight.h"

namespace octavo::nn {

void Param::allocate_grad() {
  OCTAVO_ASSERT(trainable);  // a layer must not ask for the gradient of a frozen weight
  grad = at::empty(master.sizes(), at::TensorOptions(master.device()).dtype(grad_type));
}

ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device, const Storage& storage) {
  auto param = c10::make_intrusive<Param>();
  const auto options = at::TensorOptions().device(device);
  const bool is_matrix = shape.size() >= 2;
  // A GPU's kernels take vectors in the compute dtype too.
  const bool is_low = compute != at::kFloat && (is_matrix || device.is_cuda());
  const bool one_tensor = is_low && is_matrix && (!storage.trainable || storage.master == compute);
  param->name = std::move(name);
  param->decays = decays;
  param->trainable = storage.trainable;
  param->master = at::zeros(shape, options.dtype(one_tensor ? compute : at::kFloat));
  param->grad_type = is_low && is_matrix ? storage.gradient : at::kFloat;
  param->compute = is_low && !one_tensor ? at::zeros(shape, options.dtype(compute)) : param->master;
  // A leaf that asks for gradients keeps autograd's graph connected down to the embedding.
  param->compute.set_requires_grad(storage.trainable);
  // Others get their memory at the first write.
  if (storage.trainable && param->grad_type == at::kFloat) param->allocate_grad();
  return param;
}

namespace {

constexpr Fp8Block kPackBlock{128, 128};

}  // namespace

at::Tensor Param::weights() const {
  if (!codes.defined()) return compute;
  return dequantize_weight(codes, scales, kPackBlock).to(at::kBFloat16);
}

void Param::pack() {
  OCTAVO_ASSERT(!trainable && master.dim() == 2 && compute.scalar_type() == at::kBFloat16);
  const auto packed = quantize_weight(master.cpu(), kPackBlock, at::kFloat, name);
  codes = packed.codes.to(master.device());
  scales = packed.scales.to(master.device());
  master.reset();
  compute.reset();
  ++version;
}

int64_t count_of(const ParamList& params) {
  int64_t count = 0;
  for (const auto& p : params) count += p->count();
  return count;
}

void refresh_compute(const ParamList& params) {
  const at::NoGradGuard no_grad;
  for (const auto& p : params) {
    if (!p->compute.is_same(p->master)) p->compute.copy_(p->master);
    ++p->version;
  }
}

}  // namespace octavo::nn

#include "nn/param.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::nn {

void Param::allocate_grad() {
  OCTAVO_ASSERT(trainable);  // a layer must not ask for the gradient of a frozen weight
  grad = at::empty(master.sizes(), at::TensorOptions(master.device()).dtype(grad_type));
}

ParamPtr make_param(std::string name, at::IntArrayRef shape, at::ScalarType compute, bool decays,
                    at::Device device, const Storage& storage) {
  auto param = c10::make_intrusive<Param>();
  const auto options = at::TensorOptions().device(device);
  const bool is_low = shape.size() >= 2 && compute != at::kFloat;
  const bool one_tensor = is_low && (!storage.trainable || storage.master == compute);
  param->name = std::move(name);
  param->decays = decays;
  param->trainable = storage.trainable;
  param->master = at::zeros(shape, options.dtype(one_tensor ? compute : at::kFloat));
  param->grad_type = is_low ? storage.gradient : at::kFloat;
  param->compute = is_low && !one_tensor ? at::zeros(shape, options.dtype(compute)) : param->master;
  // A leaf that asks for gradients keeps autograd's graph connected down to the embedding.
  param->compute.set_requires_grad(storage.trainable);
  // Others get their memory at the first write.
  if (storage.trainable && param->grad_type == at::kFloat) param->allocate_grad();
  return param;
}

namespace {

constexpr int64_t kPackBlock = 128;

// [O/128, I/128] factors spread over the elements of [O, I].
at::Tensor spread(const at::Tensor& factors, at::IntArrayRef sizes) {
  return factors.repeat_interleave(kPackBlock, 0)
      .narrow(0, 0, sizes[0])
      .repeat_interleave(kPackBlock, 1)
      .narrow(1, 0, sizes[1]);
}

}  // namespace

at::Tensor Param::weights() const {
  if (!codes.defined()) return compute;
  const at::NoGradGuard no_grad;
  const at::Tensor values = codes.view(at::kFloat8_e4m3fn).to(at::kFloat);
  return values.mul_(spread(scales, codes.sizes())).to(at::kBFloat16);
}

void Param::pack() {
  OCTAVO_ASSERT(!trainable && master.dim() == 2 && compute.scalar_type() == at::kBFloat16);
  const at::NoGradGuard no_grad;
  const int64_t rows = master.size(0), columns = master.size(1);
  const int64_t down = (rows + kPackBlock - 1) / kPackBlock * kPackBlock,
                across = (columns + kPackBlock - 1) / kPackBlock * kPackBlock;
  const at::Tensor values = master.to(at::kFloat);
  const at::Tensor amax =
      at::constant_pad_nd(values, {0, across - columns, 0, down - rows})
          .abs()
          .view({down / kPackBlock, kPackBlock, across / kPackBlock, kPackBlock})
          .amax({1, 3});
  scales = at::where(amax > 0, amax / 448, at::ones_like(amax));
  codes = (values / spread(scales, values.sizes())).to(at::kFloat8_e4m3fn).view(at::kByte);
  master.reset();
  compute.reset();
  ++version;
}

void refresh_compute(const ParamList& params) {
  const at::NoGradGuard no_grad;
  for (const auto& p : params) {
    if (!p->compute.is_same(p->master)) p->compute.copy_(p->master);
    ++p->version;
  }
}

}  // namespace octavo::nn

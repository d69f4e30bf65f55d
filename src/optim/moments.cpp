#include "optim/moments.h"

#include <ATen/ATen.h>

#include <bit>
#include <cmath>

#include "base/error.h"
#include "kernels/adamw_storage.h"

namespace octavo::optim {
namespace {

using at::Tensor;

at::ScalarType dtype_of(MomentType type) {
  if (type == MomentType::kFp32) return at::kFloat;
  return type == MomentType::kBf16 ? at::kBFloat16 : at::kByte;
}

// In the CPU's memory.
Tensor to_fp32(const Moment& from, MomentOrder order) {
  const Tensor values = from.values.cpu().contiguous();
  if (values.scalar_type() != at::kByte) return values.to(at::kFloat);
  const Tensor scales = from.scales.cpu().contiguous();
  Tensor result = at::empty(values.sizes(), at::kFloat);
  const auto* codes = values.const_data_ptr<uint8_t>();
  const auto* scale = scales.const_data_ptr<float>();
  auto* out = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i)
    out[i] = order == MomentOrder::kFirst
                 ? adamw::decode_first(codes[i], scale[i / adamw::kBlock])
                 : adamw::decode_second(codes[i], scale[i / adamw::kBlock]);
  return result;
}

Moment to_fp8(const Tensor& values, MomentOrder order) {
  Moment made = make_moment(values.sizes(), MomentType::kFp8, at::kCPU);
  const Tensor stored = order == MomentOrder::kFirst ? values : values.sqrt();
  const auto* x = stored.const_data_ptr<float>();
  auto* codes = made.values.mutable_data_ptr<uint8_t>();
  for (int64_t first = 0; first < stored.numel(); first += adamw::kBlock) {
    const int64_t end = std::min(first + adamw::kBlock, stored.numel());
    uint32_t largest = 0;
    for (int64_t i = first; i < end; ++i)
      largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
    const float scale = adamw::block_scale(largest), inverse = 1 / scale;
    made.scales.mutable_data_ptr<float>()[first / adamw::kBlock] = scale;
    for (int64_t i = first; i < end; ++i)
      codes[i] = order == MomentOrder::kFirst
                     ? adamw::encode_first(x[i] * inverse, adamw::kNoDraw)
                     : adamw::encode_second(x[i] * inverse, adamw::kNoDraw);
  }
  return made;
}

}  // namespace

std::string_view name_of(MomentType type) {
  if (type == MomentType::kFp32) return "FP32";
  return type == MomentType::kBf16 ? "BF16" : "FP8";
}

Moment make_moment(at::IntArrayRef shape, MomentType type, at::Device device) {
  const at::TensorOptions options(device);
  Moment made{at::zeros(shape, options.dtype(dtype_of(type))), {}};
  if (type == MomentType::kFp8)
    made.scales = at::zeros({adamw::block_count(made.values.numel())}, options.dtype(at::kFloat));
  return made;
}

int64_t bytes_of(const Moment& moment) {
  const size_t scales = moment.scales.defined() ? moment.scales.nbytes() : 0;
  return static_cast<int64_t>(moment.values.nbytes() + scales);
}

MomentType type_of(const Moment& stored, at::IntArrayRef shape, std::string_view name) {
  if (!stored.values.defined() || stored.values.sizes() != shape)
    fail(ExitCode::kDamaged, "optim", "optimizer state '", name, "': wanted shape ", shape,
         ", found ", stored.values.defined() ? octavo::str(stored.values.sizes()) : "none");
  const at::ScalarType dtype = stored.values.scalar_type();
  if (dtype == at::kFloat) return MomentType::kFp32;
  if (dtype == at::kBFloat16) return MomentType::kBf16;
  if (dtype != at::kByte)
    fail(ExitCode::kDamaged, "optim", "optimizer state '", name,
         "': wanted FP32, BF16 or FP8 codes (bytes), found ", at::toString(dtype));
  const int64_t blocks = adamw::block_count(stored.values.numel());
  if (!stored.scales.defined() || stored.scales.scalar_type() != at::kFloat ||
      stored.scales.dim() != 1 || stored.scales.numel() != blocks)
    fail(ExitCode::kDamaged, "optim", "optimizer state '", name, "': wanted ", blocks,
         " FP32 scales for its FP8 codes, found ",
         stored.scales.defined() ? octavo::str(stored.scales.sizes()) : "none");
  return MomentType::kFp8;
}

void copy_moment(const Moment& from, Moment& to, MomentOrder order) {
  const at::NoGradGuard no_grad;
  if (from.values.scalar_type() == to.values.scalar_type()) {
    to.values.copy_(from.values);
    if (to.scales.defined()) to.scales.copy_(from.scales);
    return;
  }
  const Tensor values = to_fp32(from, order);
  if (to.values.scalar_type() != at::kByte) {
    to.values.copy_(values);
    return;
  }
  const Moment made = to_fp8(values, order);
  to.values.copy_(made.values);
  to.scales.copy_(made.scales);
}

}  // namespace octavo::optim

#include "nn/rope.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace octavo::nn {
namespace {

// As transformers computes it, in FP32: the models were trained with these roundings, and at
// position 2000 an angle differs in its fourth digit from one computed in FP64.
float scaled(float frequency, const model_config::RopeScaling& s) {
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  const auto context = static_cast<float>(s.original_context);
  const auto low = static_cast<float>(s.low_freq_factor),
             high = static_cast<float>(s.high_freq_factor), factor = static_cast<float>(s.factor);
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

RopeTable::RopeTable(int64_t dim, const model_config::Rope& rope)
    : frequencies_(at::empty({dim / 2}, at::kFloat)) {
  auto* out = frequencies_.mutable_data_ptr<float>();
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    out[i] = rope.scaling ? scaled(frequency, *rope.scaling) : frequency;
  }
}

const at::Tensor& RopeTable::for_length(int64_t length, at::Device device) {
  if (table_.defined() && table_.size(0) >= length && table_.device() == device) return table_;
  const at::NoGradGuard no_grad;
  // Twice what is wanted: generation asks for one position more each time.
  const at::Tensor positions = at::arange(2 * length, at::kFloat).unsqueeze(1);
  const at::Tensor angles = (positions * frequencies_.unsqueeze(0)).to(at::kDouble);
  table_ = at::cat({angles.cos(), angles.sin()}, 1).to(at::kFloat).to(device);
  return table_;
}

}  // namespace octavo::nn

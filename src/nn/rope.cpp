#include "nn/rope.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace octavo::nn {
namespace {

// As transformers computes it, in FP32: the models were trained with these roundings, and at
// position 2000 an angle differs in its fourth digit from one computed in FP64.
float of_llama3(float frequency, const model_config::RopeScaling& s) {
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  const auto context = static_cast<float>(s.original_context);
  const auto low = static_cast<float>(s.low_freq_factor),
             high = static_cast<float>(s.high_freq_factor), factor = static_cast<float>(s.factor);
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// Frequencies that turn often within the first context stay, those that turn seldom are divided by
// the factor, and between them is a ramp over the channels.
class YarnRamp {
 public:
  YarnRamp(int64_t dim, const model_config::Rope& rope)
      : factor_(static_cast<float>(rope.scaling->factor)) {
    const model_config::RopeScaling& s = *rope.scaling;
    const auto channel = [&](double turns) {
      const double wavelengths =
          static_cast<double>(s.original_context) / (turns * 2 * std::numbers::pi);
      return static_cast<double>(dim) * std::log(wavelengths) / (2 * std::log(rope.theta));
    };
    low_ = std::max(std::floor(channel(s.beta_fast)), 0.0);
    high_ = std::min(std::ceil(channel(s.beta_slow)), static_cast<double>(dim - 1));
    if (low_ == high_) high_ += 0.001;
  }
  float scaled(int64_t i, float frequency) const {
    const float divided = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low_)) / static_cast<float>(high_ - low_), 0.0f,
        1.0f);
    const float kept = 1 - divided;
    return frequency / factor_ * (1 - kept) + frequency * kept;
  }

 private:
  float factor_;
  double low_ = 0, high_ = 0;
};

}  // namespace

RopeTable::RopeTable(int64_t dim, const model_config::Rope& rope)
    : frequencies_(at::empty({dim / 2}, at::kFloat)) {
  auto* out = frequencies_.mutable_data_ptr<float>();
  using Kind = model_config::RopeScaling::Kind;
  std::function<float(int64_t, float)> stretched = [](int64_t, float frequency) {
    return frequency;
  };
  if (rope.scaling && rope.scaling->kind == Kind::kLlama3)
    stretched = [&](int64_t, float frequency) { return of_llama3(frequency, *rope.scaling); };
  if (rope.scaling && rope.scaling->kind == Kind::kLinear)
    stretched = [&](int64_t, float frequency) {
      return frequency / static_cast<float>(rope.scaling->factor);
    };
  if (rope.scaling && rope.scaling->kind == Kind::kYarn) {
    stretched = [ramp = YarnRamp(dim, rope)](int64_t i, float frequency) {
      return ramp.scaled(i, frequency);
    };
    // Cosines and sines would be multiplied with it, those of queries and of keys.
    score_factor_ = rope.scaling->attention_factor * rope.scaling->attention_factor;
  }
  for (int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    out[i] = stretched(i, frequency);
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

#include "optim/adamw.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"

namespace octavo::optim {

AdamW::AdamW(const engine::Engine& engine, nn::ParamList params, const AdamWOptions& options)
    : engine_(engine), params_(std::move(params)), options_(options) {
  for (const auto& p : params_) {
    m_.push_back(at::zeros_like(p->master));
    v_.push_back(at::zeros_like(p->master));
  }
}

AdamW::Norm AdamW::gradient_norm() const {
  double total = 0;
  for (const auto& p : params_) {
    OCTAVO_ASSERT(!p->grad_fresh);  // a parameter that no gradient reached would get stale numbers
    const double squares = engine_.adamw->sum_of_squares(p->grad);
    if (!std::isfinite(squares)) return {squares, p->name};
    total += squares;
  }
  return {std::sqrt(total), {}};
}

void AdamW::step(double learning_rate, const Norm& norm) {
  OCTAVO_ASSERT(norm.not_finite.empty());
  const at::NoGradGuard no_grad;
  const bool clip = options_.max_grad_norm > 0 && norm.value > options_.max_grad_norm;
  ++steps_;
  for (size_t i = 0; i < params_.size(); ++i) {
    auto& p = *params_[i];
    const engine::AdamW::Hyper hyper{
        .lr = static_cast<float>(learning_rate),
        .beta1 = static_cast<float>(options_.beta1),
        .beta2 = static_cast<float>(options_.beta2),
        .eps = static_cast<float>(options_.eps),
        .weight_decay = p.decays ? static_cast<float>(options_.weight_decay) : 0.0f,
        .step = steps_,
        .grad_scale = clip ? static_cast<float>(options_.max_grad_norm / norm.value) : 1.0f,
    };
    at::Tensor copy = p.compute.is_same(p.master) ? at::Tensor() : p.compute;
    engine_.adamw->step(p.master, m_[i], v_[i], p.grad, copy, hyper);
    p.grad_fresh = true;
    ++p.version;
  }
}

void AdamW::drop_gradients() {
  for (const auto& p : params_) p->grad_fresh = true;
}

std::vector<std::pair<std::string, at::Tensor>> AdamW::state() const {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t i = 0; i < params_.size(); ++i) {
    tensors.emplace_back("m." + params_[i]->name, m_[i]);
    tensors.emplace_back("v." + params_[i]->name, v_[i]);
  }
  return tensors;
}

void AdamW::load(int64_t steps, const std::function<at::Tensor(const std::string&)>& find) {
  for (auto& [name, tensor] : state()) {
    const at::Tensor stored = find(name);
    if (!stored.defined() || stored.sizes() != tensor.sizes())
      fail(ExitCode::kDamaged, "optim", "optimizer state '", name, "': wanted shape ",
           tensor.sizes(), ", found ", stored.defined() ? octavo::str(stored.sizes()) : "none");
    tensor.copy_(stored);
  }
  steps_ = steps;
}

}  // namespace octavo::optim

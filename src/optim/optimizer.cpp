#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "optim/adamw.h"

namespace octavo::optim {
namespace {

std::map<std::string, Maker, std::less<>>& makers() {
  static std::map<std::string, Maker, std::less<>> known = {{"adamw", make_adamw}};
  return known;
}

}  // namespace

void add_maker(const std::string& name, Maker maker) {
  OCTAVO_ASSERT(makers().emplace(name, maker).second);
}

std::unique_ptr<Optimizer> make(const std::string& name, const engine::Engine& engine,
                                nn::ParamList params, const Options& options) {
  const auto found = makers().find(name);
  OCTAVO_ASSERT(found != makers().end());
  return found->second(engine, std::move(params), options);
}

Optimizer::Optimizer(const engine::Engine& engine, nn::ParamList params, const Options& options)
    : engine_(engine), options_(options) {
  for (auto& p : params)
    if (p->trainable) params_.push_back(std::move(p));
}

at::Tensor Optimizer::gradient_squares() const {
  std::vector<at::Tensor> grads;
  for (const auto& p : params_) {
    // A parameter that no gradient reached would get stale numbers.
    OCTAVO_ASSERT(p->has_gradient());
    grads.push_back(p->counted_grad());
  }
  return engine_.adamw->sums_of_squares(grads);
}

Optimizer::Norm Optimizer::gradient_norm() const {
  return gradient_norm(gradient_squares().cpu());
}

Optimizer::Norm Optimizer::gradient_norm(const at::Tensor& squares) const {
  const auto* of = squares.const_data_ptr<double>();
  double total = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!std::isfinite(of[i])) return {of[i], params_[i]->name};
    total += of[i];
  }
  return {std::sqrt(total), {}};
}

void Optimizer::step(double learning_rate, const Norm& norm) {
  OCTAVO_ASSERT(norm.not_finite.empty());
  const at::NoGradGuard no_grad;
  const bool clip = options_.max_grad_norm > 0 && norm.value > options_.max_grad_norm;
  ++steps_;
  update(learning_rate, clip ? options_.max_grad_norm / norm.value : 1);
  for (const auto& p : params_) {
    p->consume_gradient();
    ++p->version;
  }
}

void Optimizer::drop_gradients() {
  for (const auto& p : params_) p->consume_gradient();
}

double Optimizer::bytes_per_parameter() const {
  int64_t bytes = 0, count = 0;
  for (const auto& [name, tensor] : state()) bytes += static_cast<int64_t>(tensor.nbytes());
  for (const auto& p : params_) {
    const int64_t n = p->master.numel();
    bytes += static_cast<int64_t>(p->master.nbytes()) +
             n * static_cast<int64_t>(c10::elementSize(p->grad_type));
    if (const at::Tensor copy = p->master_copy(); copy.defined())
      bytes += static_cast<int64_t>(copy.nbytes());
    count += n;
  }
  return count == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(count);
}

void Optimizer::load(int64_t steps, const StateSource& find) {
  load_state(find);
  steps_ = steps;
}

}  // namespace octavo::optim

#pragma once
// Linear layers in FP8 over an engine whose FP8 operation is watched.

#include <memory>
#include <utility>
#include <vector>

#include "nn/fp8_layer.h"
#include "nn/layers.h"
#include "nn/linear.h"
#include "nn/oracle.h"

namespace octavo::nn {

using fp8::FormatChoice;
using fp8::kRecipes;
using fp8::Recipe;
using fp8::Role;

// Passes every call on and remembers what was ordered.
class Watched final : public engine::Fp8Linear {
 public:
  struct Call {
    at::Tensor x;
    engine::QuantizeSpec row, column;
  };
  explicit Watched(std::unique_ptr<Fp8Linear> inner) : inner_(std::move(inner)) {}

  engine::Fp8Matrix quantize(const at::Tensor& x, Recipe recipe, const engine::QuantizeSpec& row,
                             const engine::QuantizeSpec& column) override {
    calls.push_back({x, row, column});
    return inner_->quantize(x, recipe, row, column);
  }
  void forward(const engine::Fp8Matrix& x, const engine::Fp8Matrix& w, const at::Tensor& bias,
               at::Tensor& y) override {
    inner_->forward(x, w, bias, y);
  }
  void input_gradient(const engine::Fp8Matrix& dy, const engine::Fp8Matrix& w,
                      at::Tensor& dx) override {
    inner_->input_gradient(dy, w, dx);
  }
  void weight_gradient(const engine::Fp8Matrix& dy, const engine::Fp8Matrix& x, at::Tensor& dw,
                       engine::Accumulate mode) override {
    modes.push_back(mode);
    inner_->weight_gradient(dy, x, dw, mode);
  }
  void update_factors(at::Tensor& history, at::Tensor& factors,
                      const std::vector<fp8::Format>& formats, fp8::AmaxAlgo algo, int64_t margin,
                      bool recompute) override {
    inner_->update_factors(history, factors, formats, algo, margin, recompute);
  }
  at::Tensor health_stats(const at::Tensor& x, const engine::Fp8Matrix& quantized,
                          fp8::Direction direction) override {
    ++measured;
    return inner_->health_stats(x, quantized, direction);
  }

  std::vector<Call> calls;
  std::vector<engine::Accumulate> modes;
  int64_t measured = 0;

 private:
  std::unique_ptr<Fp8Linear> inner_;
};

inline ParamPtr bf16_param(const std::string& name, at::IntArrayRef shape, double scale) {
  const at::NoGradGuard no_grad;
  auto p = make_param(name, shape, at::kBFloat16, shape.size() > 1, at::kCPU);
  p->master.normal_().mul_(scale);
  p->grad.fill_(NAN);  // a fresh gradient must be overwritten
  refresh_compute({p});
  return p;
}

inline LinearPtr fp8_test_layer(const std::string& name, int64_t block, int64_t outputs,
                                int64_t inputs, bool biased = true) {
  return make_linear(name, block, bf16_param(name + ".weight", {outputs, inputs}, 0.1),
                     biased ? bf16_param(name + ".bias", {outputs}, 1) : ParamPtr());
}

inline at::Tensor bf16_normal(at::IntArrayRef shape, double scale = 1) {
  return (at::randn(shape) * scale).to(at::kBFloat16);
}

class Fp8Test : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(12);
    auto wrapped = std::make_unique<Watched>(std::move(engine.fp8_linear));
    watched = wrapped.get();
    engine.fp8_linear = std::move(wrapped);
  }
  static fp8::Options options_of(Recipe recipe) {
    return {.recipe = recipe, .format = fp8::default_format(recipe), .history = 4};
  }
  engine::Engine engine{{at::kCPU, at::kBFloat16, false}};
  Watched* watched = nullptr;
};

}  // namespace octavo::nn

#include "te_conventions.h"

#include <ATen/ATen.h>

namespace octavo {
namespace {

using at::Tensor;
using engine::Accumulate;

void add_or_copy(Tensor& gradient, const Tensor& made, Accumulate mode) {
  if (mode == Accumulate::kAdd)
    gradient.add_(made);
  else
    gradient.copy_(made);
}

struct ApartLayerNorm final : engine::LayerNorm {
  explicit ApartLayerNorm(std::unique_ptr<engine::LayerNorm> norm) : inner(std::move(norm)) {}
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, const Tensor& beta,
                  double eps) override {
    return inner->forward(x, delta, gamma, beta, eps);
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Tensor& dbeta, Accumulate mode) override {
    Tensor gamma_sums = at::empty_like(gamma), beta_sums = at::empty_like(gamma);
    Tensor dx =
        inner->backward(d_normed, {}, saved, gamma, gamma_sums, beta_sums, Accumulate::kOverwrite);
    add_or_copy(dgamma, gamma_sums, mode);
    add_or_copy(dbeta, beta_sums, mode);
    if (d_sum.defined()) dx.add_(d_sum);
    return dx;
  }
  std::unique_ptr<engine::LayerNorm> inner;
};

struct ApartRmsNorm final : engine::RmsNorm {
  explicit ApartRmsNorm(std::unique_ptr<engine::RmsNorm> norm) : inner(std::move(norm)) {}
  Forward forward(const Tensor& x, const Tensor& delta, const Tensor& gamma, double eps) override {
    return inner->forward(x, delta, gamma, eps);
  }
  Tensor backward(const Tensor& d_normed, const Tensor& d_sum, const Forward& saved,
                  const Tensor& gamma, Tensor& dgamma, Accumulate mode) override {
    Tensor sums = at::empty_like(gamma);
    const Tensor dx = inner->backward(d_normed, d_sum, saved, gamma, sums, Accumulate::kOverwrite);
    if (dgamma.defined()) add_or_copy(dgamma, sums, mode);
    return dx;
  }
  std::unique_ptr<engine::RmsNorm> inner;
};

struct AngleRope final : engine::Rope {
  explicit AngleRope(std::unique_ptr<engine::Rope> rope) : inner(std::move(rope)) {}
  void rotate(Tensor& x, const Tensor& positions, const Tensor& table, int64_t heads,
              bool back) override {
    const auto halves = table.chunk(2, 1);
    const Tensor angles = at::atan2(halves[1], halves[0]).to(at::kDouble);
    inner->rotate(x, positions, at::cat({angles.cos(), angles.sin()}, 1).to(at::kFloat), heads,
                  back);
  }
  std::unique_ptr<engine::Rope> inner;
};

}  // namespace

void take_conventions(engine::Engine& engine) {
  engine.layer_norm = std::make_unique<ApartLayerNorm>(std::move(engine.layer_norm));
  engine.rms_norm = std::make_unique<ApartRmsNorm>(std::move(engine.rms_norm));
  engine.rope = std::make_unique<AngleRope>(std::move(engine.rope));
}

}  // namespace octavo

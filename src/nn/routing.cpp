#include "nn/routing.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace octavo::nn {

using at::Tensor;

void Routing::begin_pass(double balance_scale, double z_scale) {
  recording_ = true;
  balance_scale_ = balance_scale;
  z_scale_ = z_scale;
  layers_.assign(static_cast<size_t>(sizes_.layers), {});
}

void Routing::record(int64_t layer, Layer told) {
  layers_[static_cast<size_t>(layer)] = std::move(told);
}

double Routing::rows() const {
  int64_t rows = 0;
  for (const Layer& layer : layers_) rows += layer.tokens;
  return static_cast<double>(rows);
}

Tensor Routing::sum_of(Tensor Layer::*of) const {
  Tensor sum;
  for (const Layer& layer : layers_) {
    OCTAVO_ASSERT((layer.*of).defined());
    sum = sum.defined() ? sum + layer.*of : layer.*of;
  }
  return sum;
}

// As transformers' load_balancing_loss_func has it: experts * sum over experts of (rows that chose
// it / tokens) * (mean probability), where tokens are those of all layers together. Rows are
// counted and have no gradient.
Tensor Routing::balance_gradient() const {
  const double scale = balance_scale_ * static_cast<double>(sizes_.experts) / (rows() * rows());
  return sum_of(&Layer::counts).to(at::kFloat) * scale;
}

Tensor Routing::end_pass() {
  recording_ = false;
  const double scale = static_cast<double>(sizes_.experts) / (rows() * rows());
  const Tensor balance =
      (sum_of(&Layer::counts).to(at::kDouble) * sum_of(&Layer::probabilities)).sum() * scale;
  const Tensor squares = sum_of(&Layer::squares).to(at::kDouble) / rows();
  std::vector<Tensor> parts = {balance.reshape({1}), squares.reshape({1})};
  for (const Layer& layer : layers_) parts.push_back(layer.counts.to(at::kDouble));
  layers_.clear();
  return at::cat(parts);
}

}  // namespace octavo::nn

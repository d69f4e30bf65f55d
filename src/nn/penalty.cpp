#include "nn/penalty.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Value (FP64 scalar) and gradient (FP32, shape of x) of a penalty averaged over tokens.
std::pair<Tensor, Tensor> evaluate(PenaltyKind kind, const Tensor& x) {
  const Tensor v = x.to(at::kFloat), squares = v * v;
  const auto tokens = static_cast<double>(x.size(0)), width = static_cast<double>(x.size(1));
  if (kind == PenaltyKind::kActivationL2)
    return {squares.mean(at::kDouble), v * (2 / (tokens * width))};
  const Tensor m2 = squares.mean(1, true).clamp_min(1e-12), m4 = (squares * squares).mean(1, true);
  const Tensor gradient =
      (v * squares / (m2 * m2) - v * m4 / (m2 * m2 * m2)) * (4 / (tokens * width));
  return {(m4 / (m2 * m2)).mean(at::kDouble), gradient};
}

struct PenaltyNode : Function<PenaltyNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& gradient) {
    context->save_for_backward({gradient});
    return x;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const Tensor added = context->get_saved_variables()[0];
    return {grads[0].defined() ? grads[0] + added : added, Tensor()};
  }
};

}  // namespace

Tensor penalize(const Tensor& x, Penalty& penalty, double share) {
  auto [value, gradient] = evaluate(penalty.kind, x.detach());
  value = value * share;
  penalty.total = penalty.total.defined() ? penalty.total + value : value;
  return PenaltyNode::apply(x, (gradient * (penalty.gradient_scale * share)).to(x.scalar_type()));
}

}  // namespace octavo::nn

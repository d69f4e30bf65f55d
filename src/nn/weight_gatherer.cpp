#include "nn/weight_gatherer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BackwardHook : torch::CustomClassHolder {
  explicit BackwardHook(std::function<void()> f) : tell(std::move(f)) {}
  std::function<void()> tell;
};

// Passes values and gradients on, and tells when the gradients come by.
struct BackwardHookNode : torch::autograd::Function<BackwardHookNode> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& delta,
                               const c10::intrusive_ptr<BackwardHook>& hook) {
    context->saved_data["hook"] = c10::IValue::make_capsule(hook);
    context->saved_data["has_delta"] = delta.has_value();
    context->set_materialize_grads(false);
    if (!delta) return {x};
    return {x, *delta};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    c10::static_intrusive_pointer_cast<BackwardHook>(context->saved_data["hook"].toCapsule())
        ->tell();
    return {grads[0], context->saved_data["has_delta"].toBool() ? grads[1] : Tensor(), Tensor()};
  }
};

std::pair<Tensor, Tensor> tell_in_backward(const Tensor& x, const Tensor& delta,
                                           std::function<void()> tell) {
  const auto given = delta.defined() ? std::optional<Tensor>(delta) : std::nullopt;
  const auto out =
      BackwardHookNode::apply(x, given, c10::make_intrusive<BackwardHook>(std::move(tell)));
  return {out[0], delta.defined() ? out[1] : Tensor()};
}

}  // namespace

std::pair<Tensor, Tensor> with_unit(WeightGatherer& gatherer, int64_t unit,
                                    const BlockFunction& block, const Tensor& x,
                                    const Tensor& delta) {
  gatherer.before_forward(unit);
  const bool training = at::GradMode::is_enabled();
  WeightGatherer* home = &gatherer;
  auto in = std::pair(x, delta);
  // With a frozen embedding the first block's input has no gradient to tell by; the end of the
  // pass closes that unit.
  if (training) in = tell_in_backward(x, delta, [home, unit] { home->after_backward(unit); });
  auto out = block(in.first, in.second);
  if (training)
    out = tell_in_backward(out.first, out.second, [home, unit] { home->before_backward(unit); });
  gatherer.after_forward(unit);
  return out;
}

}  // namespace octavo::nn

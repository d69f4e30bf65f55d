#include "nn/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldBlock : torch::CustomClassHolder {
  explicit HeldBlock(BlockFunction f) : function(std::move(f)) {}
  BlockFunction function;
};

struct RecomputeNode : torch::autograd::Function<RecomputeNode> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& delta,
                               const c10::intrusive_ptr<HeldBlock>& block) {
    context->saved_data["block"] = c10::IValue::make_capsule(block);
    context->save_for_backward({x, delta.value_or(Tensor())});
    context->set_materialize_grads(false);
    const auto out = block->function(x, delta.value_or(Tensor()));  // gradients are off in here
    return {out.first, out.second};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto block =
        c10::static_intrusive_pointer_cast<HeldBlock>(context->saved_data["block"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto leaf = [](const Tensor& t) {
      return t.defined() ? t.detach().requires_grad_(true) : t;
    };
    const Tensor x = leaf(saved[0]), delta = leaf(saved[1]);
    const at::AutoGradMode with_gradients(true);
    const auto out = block->function(x, delta);
    variable_list roots, flows;
    for (const auto& [root, flow] :
         {std::pair(out.first, grads[0]), std::pair(out.second, grads[1])})
      if (flow.defined()) {
        roots.push_back(root);
        flows.push_back(flow);
      }
    torch::autograd::backward(roots, flows);
    return {x.grad(), delta.defined() ? delta.grad() : Tensor(), Tensor()};
  }
};

}  // namespace

std::pair<Tensor, Tensor> recomputed(const BlockFunction& block, const Tensor& x,
                                     const Tensor& delta) {
  if (!at::GradMode::is_enabled()) return block(x, delta);
  const auto given = delta.defined() ? std::optional<Tensor>(delta) : std::nullopt;
  // A frozen embedding gives an input without gradient; what is trained inside needs the node.
  const Tensor input = x.requires_grad() ? x : x.detach().requires_grad_(true);
  const auto out = RecomputeNode::apply(input, given, c10::make_intrusive<HeldBlock>(block));
  return {out[0], out[1]};
}

}  // namespace octavo::nn

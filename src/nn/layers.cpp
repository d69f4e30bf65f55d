#include "nn/layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

namespace octavo::nn {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// What a node's backward needs beside tensors. Weights are kept here rather than as saved
// variables, because the optimizer changes them in place between steps, which autograd would take
// for an error.
struct NodeState : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  ParamPtr first, second;
  LinearPtr layer;
  int64_t a = 0, b = 0;
};
using StatePtr = c10::intrusive_ptr<NodeState>;

StatePtr make_state(const Engine& engine, ParamPtr first = {}, ParamPtr second = {}, int64_t a = 0,
                    int64_t b = 0) {
  auto state = c10::make_intrusive<NodeState>();
  state->engine = &engine;
  state->first = std::move(first);
  state->second = std::move(second);
  state->a = a;
  state->b = b;
  return state;
}

StatePtr make_state(const Engine& engine, const LinearPtr& layer) {
  StatePtr state = make_state(engine);
  state->layer = layer;
  return state;
}

void remember(AutogradContext* context, const StatePtr& state) {
  context->saved_data["state"] = c10::IValue::make_capsule(state);
}
StatePtr recall(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<NodeState>(context->saved_data["state"].toCapsule());
}

struct EmbedNode : Function<EmbedNode> {
  static Tensor forward(AutogradContext* context, const Tensor& ids, const Tensor& tokens,
                        const Tensor& positions, const StatePtr& state) {
    remember(context, state);
    context->save_for_backward({ids});
    return state->engine->embedding->forward(ids, tokens, positions, state->a);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    const auto saved = context->get_saved_variables();
    state->first->zero_if_fresh();
    state->second->zero_if_fresh();
    state->engine->embedding->backward(saved[0], grads[0].contiguous(), state->first->grad,
                                       state->second->grad, state->a);
    return {Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct LinearNode : Function<LinearNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const Tensor& /*weight: connects the graph*/, const StatePtr& state) {
    remember(context, state);
    variable_list kept;
    const Tensor y = linear_forward(*state->engine, *state->layer, x, &kept);
    context->save_for_backward(kept);
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    Linear& layer = *state->layer;
    const Tensor dy = grads[0].contiguous();
    if (layer.bias) state->engine->column_sum->add(dy, layer.bias->grad, layer.bias->next_write());
    return {linear_backward(*state->engine, layer, dy, context->get_saved_variables(),
                            context->needs_input_grad(0)),
            Tensor(), Tensor()};
  }
};

struct LinearGeluNode : Function<LinearGeluNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const Tensor& /*weight: connects the graph*/, const StatePtr& state) {
    remember(context, state);
    variable_list kept;
    const Tensor h = linear_forward(*state->engine, *state->layer, x, &kept);
    kept.push_back(h);
    context->save_for_backward(kept);
    return state->engine->gelu->forward(h);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    Linear& layer = *state->layer;
    variable_list kept = context->get_saved_variables();
    const Tensor h = kept.back();
    kept.pop_back();
    // Ours to overwrite: it was made for this node by the layer after it.
    Tensor dh = grads[0].contiguous();
    state->engine->gelu->backward(dh, h, layer.bias->grad, layer.bias->next_write());
    return {linear_backward(*state->engine, layer, dh, kept, context->needs_input_grad(0)),
            Tensor(), Tensor()};
  }
};

struct AddNormNode : Function<AddNormNode> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& maybe_delta,
                               const Tensor& /*gamma: connects the graph*/, const StatePtr& state,
                               double eps) {
    const Tensor delta = maybe_delta.value_or(Tensor());
    remember(context, state);
    const auto out = state->engine->layer_norm->forward(x, delta, state->first->master,
                                                        state->second->master, eps);
    context->save_for_backward({out.sum, out.mean, out.rstd});
    context->saved_data["has_delta"] = delta.defined();
    context->set_materialize_grads(false);  // the last norm's sum has no reader: no zeros for it
    return {out.sum, out.normed};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    const auto saved = context->get_saved_variables();
    const engine::LayerNorm::Forward forward{saved[0], {}, saved[1], saved[2]};
    const Tensor d_normed = grads[1].contiguous();
    const Tensor d_sum = grads[0].defined() ? grads[0].contiguous() : Tensor();
    const auto mode = state->first->next_write();
    state->second->next_write();  // gamma and beta are always written together
    const Tensor dx =
        state->engine->layer_norm->backward(d_normed, d_sum, forward, state->first->master,
                                            state->first->grad, state->second->grad, mode);
    return {dx, context->saved_data["has_delta"].toBool() ? dx : Tensor(), Tensor(), Tensor(),
            Tensor()};
  }
};

struct AttentionNode : Function<AttentionNode> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, const StatePtr& state) {
    remember(context, state);
    const auto out = state->engine->attention->forward(qkv, state->a, state->b);
    context->save_for_backward({qkv, out.out, out.lse});
    return out.out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    const auto saved = context->get_saved_variables();
    const engine::Attention::Forward forward{saved[1], saved[2]};
    return {state->engine->attention->backward(grads[0].contiguous(), saved[0], forward, state->a,
                                               state->b),
            Tensor()};
  }
};

}  // namespace

Tensor embed(const Engine& engine, const Tensor& ids, const ParamPtr& tokens,
             const ParamPtr& positions, int64_t length) {
  return EmbedNode::apply(ids, tokens->compute, positions->compute,
                          make_state(engine, tokens, positions, length));
}

Tensor linear(const Engine& engine, const Tensor& x, const LinearPtr& layer) {
  if (!at::GradMode::is_enabled()) return linear_forward(engine, *layer, x, nullptr);
  return LinearNode::apply(x, layer->weight->compute, make_state(engine, layer));
}

Tensor linear_gelu(const Engine& engine, const Tensor& x, const LinearPtr& layer) {
  if (!at::GradMode::is_enabled())
    return engine.gelu->forward(linear_forward(engine, *layer, x, nullptr));
  return LinearGeluNode::apply(x, layer->weight->compute, make_state(engine, layer));
}

std::pair<Tensor, Tensor> add_norm(const Engine& engine, const Tensor& x, const Tensor& delta,
                                   const ParamPtr& gamma, const ParamPtr& beta, double eps) {
  const auto given = delta.defined() ? std::optional<Tensor>(delta) : std::nullopt;
  const auto out =
      AddNormNode::apply(x, given, gamma->compute, make_state(engine, gamma, beta), eps);
  return {out[0], out[1]};
}

Tensor attention(const Engine& engine, const Tensor& qkv, int64_t batch, int64_t heads) {
  return AttentionNode::apply(qkv, make_state(engine, {}, {}, batch, heads));
}

}  // namespace octavo::nn

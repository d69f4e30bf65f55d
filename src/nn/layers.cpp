#include "nn/layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "nn/kv_cache.h"
#include "nn/weight_gatherer.h"

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
  static Tensor forward(AutogradContext* context, const Tensor& ids,
                        const Tensor& /*tokens: connects the graph*/, const StatePtr& state) {
    remember(context, state);
    context->save_for_backward({ids});
    return state->engine->embedding->forward(
        ids, state->first->compute, state->second ? state->second->compute : Tensor(), state->a);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = recall(context);
    const auto saved = context->get_saved_variables();
    state->first->zero_if_fresh();
    if (state->second) state->second->zero_if_fresh();
    Tensor none;
    state->engine->embedding->backward(saved[0], grads[0].contiguous(), state->first->grad,
                                       state->second ? state->second->grad : none, state->a);
    return {Tensor(), Tensor(), Tensor()};
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
    add_bias_gradient(*state->engine, layer, dy);
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
    if (sums_bias(*state->engine, layer)) {
      Tensor by_gemm;
      state->engine->gelu->backward(dh, h, by_gemm, engine::Accumulate::kOverwrite);
    } else if (layer.bias->trainable) {
      state->engine->gelu->backward(dh, h, layer.bias->grad, layer.bias->next_write());
    } else {
      Tensor unused = at::empty({h.size(1)}, h.options().dtype(at::kFloat));
      state->engine->gelu->backward(dh, h, unused, engine::Accumulate::kOverwrite);
    }
    return {linear_backward(*state->engine, layer, dh, kept, context->needs_input_grad(0)),
            Tensor(), Tensor()};
  }
};

struct NormState : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  Norm norm;
};

struct AddNormNode : Function<AddNormNode> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& maybe_delta,
                               const Tensor& /*gamma: connects the graph*/,
                               const c10::intrusive_ptr<NormState>& state) {
    const Tensor delta = maybe_delta.value_or(Tensor());
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    const auto out = norm_forward(*state->engine, state->norm, x, delta);
    context->save_for_backward({out.sum, out.mean, out.rstd});
    context->saved_data["has_delta"] = delta.defined();
    context->set_materialize_grads(false);  // the last norm's sum has no reader: no zeros for it
    return {out.sum, out.normed};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state =
        c10::static_intrusive_pointer_cast<NormState>(context->saved_data["state"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor d_sum = grads[0].defined() ? grads[0].contiguous() : Tensor();
    const Tensor dx = norm_backward(*state->engine, state->norm, grads[1].contiguous(), d_sum,
                                    {saved[0], {}, saved[1], saved[2]});
    return {dx, context->saved_data["has_delta"].toBool() ? dx : Tensor(), Tensor(), Tensor()};
  }
};

struct SwiGluNode : Function<SwiGluNode> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const StatePtr& state) {
    remember(context, state);
    context->save_for_backward({x});
    return state->engine->swiglu->forward(x);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {recall(context)->engine->swiglu->backward(grads[0].contiguous(),
                                                      context->get_saved_variables()[0]),
            Tensor()};
  }
};

struct QkNormState : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  struct Part {
    Norm norm;
    int64_t column, width;  // of the packed rows
    // A row for each norm that is taken.
    Tensor rows_of(const Tensor& packed) const {
      return packed.narrow(1, column, width).contiguous().view({-1, norm.gamma->sizes()[0]});
    }
    void put(const Tensor& rows, Tensor& packed) const {
      packed.narrow(1, column, width).copy_(rows.view({packed.size(0), width}));
    }
  };
  std::array<Part, 2> parts;  // queries, keys
};

struct QkNormNode : Function<QkNormNode> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv,
                        const Tensor& /*gamma: connects the graph*/,
                        const c10::intrusive_ptr<QkNormState>& state) {
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    Tensor out = at::empty_like(qkv);
    variable_list kept;
    int64_t values = 0;
    for (const auto& part : state->parts) {
      const auto found = norm_forward(*state->engine, part.norm, part.rows_of(qkv), {});
      part.put(found.normed, out);
      kept.insert(kept.end(), {found.sum, found.rstd});
      values = part.column + part.width;
    }
    out.slice(1, values).copy_(qkv.slice(1, values));
    context->save_for_backward(kept);
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state =
        c10::static_intrusive_pointer_cast<QkNormState>(context->saved_data["state"].toCapsule());
    const variable_list kept = context->get_saved_variables();
    Tensor d_qkv = grads[0].contiguous();  // made for this node by attention: ours to overwrite
    for (size_t i = 0; i < state->parts.size(); ++i) {
      const auto& part = state->parts[i];
      part.put(norm_backward(*state->engine, part.norm, part.rows_of(d_qkv), {},
                             {kept[2 * i], {}, {}, kept[2 * i + 1]}),
               d_qkv);
    }
    return {d_qkv, Tensor(), Tensor()};
  }
};

// What attention's backward needs beside tensors.
struct AttentionState : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  engine::Attention::Shape shape;
  Tensor positions, angles;  // undefined: not rotated

  void rotate(Tensor& qkv, bool back) const {
    if (angles.defined())
      engine->rope->rotate(qkv, positions, angles, shape.heads + shape.kv_heads, back);
  }
  Tensor gradient(const Tensor& d_out, const Tensor& qkv,
                  const engine::Attention::Forward& forward) const {
    if (angles.defined() && qkv.is_cuda() && engine->rope->packs() &&
        engine->attention->gives_parts()) {
      const auto parts = engine->attention->backward_parts(d_out, qkv, forward, shape);
      return engine->rope->packed_back(parts.dq, parts.dk, parts.dv, positions, angles);
    }
    Tensor d_qkv = engine->attention->backward(d_out, qkv, forward, shape);
    rotate(d_qkv, true);
    return d_qkv;
  }
};
using AttentionStatePtr = c10::intrusive_ptr<AttentionState>;

struct AttentionNode : Function<AttentionNode> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv,
                        const AttentionStatePtr& state) {
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    Tensor rotated = qkv;
    state->rotate(rotated, false);
    const auto out = state->engine->attention->forward(rotated, state->shape);
    context->save_for_backward({rotated, out.out, out.lse});
    return out.out;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto state = c10::static_intrusive_pointer_cast<AttentionState>(
        context->saved_data["state"].toCapsule());
    const auto saved = context->get_saved_variables();
    return {state->gradient(grads[0].contiguous(), saved[0], {saved[1], saved[2]}), Tensor()};
  }
};

Tensor cached_attention(const AttentionState& state, const Tensor& qkv, KvCache& cache,
                        int64_t layer) {
  const auto& shape = state.shape;
  const auto parts = qkv.split_with_sizes(
      {shape.width(), shape.kv_heads * shape.dim, shape.kv_heads * shape.dim}, 1);
  cache.append(layer, parts[1], parts[2]);
  if (cache.length == 0) return state.engine->attention->forward(qkv, shape).out;
  const auto rows = cache.rows(layer, qkv.size(0));
  // What is before the first query's window is not read.
  const int64_t before = rows.keys.size(0) - qkv.size(0) + 1 - shape.window;
  const int64_t first = shape.window > 0 ? std::max<int64_t>(0, before) : 0;
  return state.engine->attention->extend(parts[0], rows.keys.slice(0, first),
                                         rows.values.slice(0, first), shape);
}

}  // namespace

Tensor embed(const Engine& engine, const Tokens& input, const ParamPtr& tokens,
             const ParamPtr& positions) {
  const GatherScope visit(*tokens);
  const Sequences& sequences = input.sequences;
  const bool in_rows = sequences.rows_of > 0;
  const Tensor x = EmbedNode::apply(input.ids, tokens->leaf,
                                    make_state(engine, tokens, in_rows ? positions : ParamPtr(),
                                               in_rows ? sequences.rows_of : input.ids.size(0)));
  if (!positions || in_rows) return x;
  // Packed documents: positions are looked up like tokens.
  return x + EmbedNode::apply(sequences.positions, positions->leaf,
                              make_state(engine, positions, {}, input.ids.size(0)));
}

Tensor linear(const Engine& engine, const Tensor& x, const LinearPtr& layer) {
  if (!at::GradMode::is_enabled()) return linear_forward(engine, *layer, x, nullptr);
  return LinearNode::apply(x, trained_leaf(*layer), make_state(engine, layer));
}

Tensor linear_gelu(const Engine& engine, const Tensor& x, const LinearPtr& layer) {
  if (!at::GradMode::is_enabled())
    return engine.gelu->forward(linear_forward(engine, *layer, x, nullptr));
  return LinearGeluNode::apply(x, trained_leaf(*layer), make_state(engine, layer));
}

std::pair<Tensor, Tensor> add_norm(const Engine& engine, const Tensor& x, const Tensor& delta,
                                   const Norm& norm) {
  const auto state = c10::make_intrusive<NormState>();
  state->engine = &engine;
  state->norm = norm;
  const auto given = delta.defined() ? std::optional<Tensor>(delta) : std::nullopt;
  const auto out = AddNormNode::apply(x, given, norm.gamma->leaf, state);
  return {out[0], out[1]};
}

Tensor swiglu(const Engine& engine, const Tensor& x) {
  if (!at::GradMode::is_enabled()) return engine.swiglu->forward(x);
  return SwiGluNode::apply(x, make_state(engine));
}

Tensor qk_norm(const Engine& engine, const Tensor& qkv, const AttentionHeads& heads,
               const Norm& query_norm, const Norm& key_norm) {
  const auto state = c10::make_intrusive<QkNormState>();
  const int64_t queries = heads.heads * heads.dim, keys = heads.kv_heads * heads.dim;
  state->engine = &engine;
  state->parts = {{{query_norm, 0, queries}, {key_norm, queries, keys}}};
  return QkNormNode::apply(qkv, query_norm.gamma->leaf, state);
}

Tensor attention(const Engine& engine, const Tensor& qkv, const Tokens& tokens,
                 const AttentionHeads& heads) {
  const auto state = c10::make_intrusive<AttentionState>();
  state->engine = &engine;
  state->shape = {heads.heads,
                  heads.kv_heads,
                  heads.dim,
                  tokens.sequences.bounds,
                  tokens.sequences.starts,
                  tokens.sequences.longest};
  state->shape.scale = heads.scale;
  if (heads.window < tokens.sequences.longest) state->shape.window = heads.window;
  if (heads.rope != nullptr) {
    state->positions = tokens.sequences.positions;
    state->angles = heads.rope->for_length(tokens.sequences.longest, qkv.device());
    if (heads.rope->score_factor() != 1)
      state->shape.scale = state->shape.softmax_scale() * heads.rope->score_factor();
  }
  if (tokens.cache == nullptr) return AttentionNode::apply(qkv, state);
  OCTAVO_ASSERT(!at::GradMode::is_enabled());
  Tensor rotated = qkv;
  state->rotate(rotated, false);
  return cached_attention(*state, rotated, *tokens.cache, heads.layer);
}

}  // namespace octavo::nn

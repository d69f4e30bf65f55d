#include "nn/blocks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "nn/fp8_layer.h"

namespace octavo::nn {
namespace {

using at::Tensor;
using engine::Activation;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A norm and the linear layers behind it (QKV of attention, or both of the MLP) and, between the
// passes, what the backward one reads. That is taken out by it, so that each tensor is freed as
// soon as it was used.
struct PreNormLayers : torch::CustomClassHolder {
  const Engine* engine = nullptr;
  Norm norm;
  LinearPtr first, second;  // second null: no MLP
  Activation activation = Activation::kGelu;
  bool training = false, has_delta = false;

  NormResult normed;
  Tensor hidden;                                // what the activation read
  std::vector<Tensor> kept_first, kept_second;  // of the linear layers

  bool may_fuse(const Linear& layer) const {
    return layer.fp8 != nullptr && layer.adapters.empty() && engine->fp8_linear->has_fused_passes();
  }
  // What keeps the node in autograd's graph when its input has no gradient.
  Tensor trained_leaf() const {
    if (norm.gamma && norm.gamma->trainable) return norm.gamma->leaf;
    const Tensor leaf = nn::trained_leaf(*first);
    return second && !leaf.requires_grad() ? nn::trained_leaf(*second) : leaf;
  }
  // GELU at the end of the first layer's GEMM, and its gradient at the end of the second's.
  bool fuses_gelu() const {
    return second && activation == Activation::kGelu && nn::fuses_gelu(*engine, *first, *second);
  }
  LinearOperand normalize(const Tensor& x, const Tensor& delta);
  LinearOperand activate(const Tensor& h);
  LinearOperand activation_gradient(Tensor d_activated);
  Tensor forward(const Tensor& x, const Tensor& delta);
  Tensor backward(const Tensor& d_sum, const Tensor& dy, bool want_dx);
};

LinearOperand PreNormLayers::normalize(const Tensor& x, const Tensor& delta) {
  if (!norm.gamma) {
    normed = {delta.defined() ? at::add(x, delta) : x, {}, {}, {}};
    return {normed.sum.detach(), {}};
  }
  if (may_fuse(*first) && !norm.adds_one) {
    auto made =
        first->fp8->normed_input(x, delta, norm, training, training && first->weight->trainable);
    if (made) {
      normed = {made->sum, {}, made->mean, made->rstd};
      return {{}, std::move(made->matrix)};
    }
  }
  normed = norm_forward(*engine, norm, x, delta);
  return {std::exchange(normed.normed, {}), {}};
}

LinearOperand PreNormLayers::activate(const Tensor& h) {
  if (may_fuse(*second)) {
    auto made = second->fp8->activated_input(activation, h, training,
                                             training && second->weight->trainable);
    if (made) return {{}, std::move(*made)};
  }
  switch (activation) {
    case Activation::kGelu:
      return {engine->gelu->forward(h), {}};
    case Activation::kSwiGlu:
      return {engine->swiglu->forward(h), {}};
    case Activation::kGeGlu:
      break;
  }
  return {engine->geglu->forward(h), {}};
}

LinearOperand PreNormLayers::activation_gradient(Tensor d_activated) {
  const Tensor h = std::exchange(hidden, {});
  Param* bias = first->bias && first->bias->trainable ? first->bias.get() : nullptr;
  if (may_fuse(*first)) {
    auto made = first->fp8->activation_gradient(activation, d_activated, h, bias, true,
                                                first->weight->trainable);
    if (made) return {{}, std::move(*made)};
  }
  if (activation != Activation::kGelu) {
    Tensor dh = activation == Activation::kSwiGlu ? engine->swiglu->backward(d_activated, h)
                                                  : engine->geglu->backward(d_activated, h);
    add_bias_gradient(*engine, *first, dh);
    return {std::move(dh), {}};
  }
  Tensor unused;
  if (sums_bias(*engine, *first)) {
    engine->gelu->backward(d_activated, h, unused, engine::Accumulate::kOverwrite);
    return {std::move(d_activated), {}};
  }
  if (bias == nullptr) unused = at::empty({h.size(1)}, h.options().dtype(at::kFloat));
  const auto mode = bias != nullptr ? bias->next_write() : engine::Accumulate::kOverwrite;
  engine->gelu->backward(d_activated, h, bias != nullptr ? bias->grad : unused, mode);
  return {std::move(d_activated), {}};
}

Tensor PreNormLayers::forward(const Tensor& x, const Tensor& delta) {
  has_delta = delta.defined();
  if (fuses_gelu()) {
    Tensor h;
    const Tensor activated = linear_gelu_forward(*engine, *first, normalize(x, delta).values,
                                                 training ? &kept_first : nullptr, h);
    if (training) hidden = h;
    return linear_forward(*engine, *second, activated, training ? &kept_second : nullptr);
  }
  Tensor y = linear_forward(*engine, *first, normalize(x, delta), training ? &kept_first : nullptr);
  if (!second) return y;
  if (training) hidden = y;
  y = linear_forward(*engine, *second, activate(y), training ? &kept_second : nullptr);
  return y;
}

Tensor PreNormLayers::backward(const Tensor& d_sum, const Tensor& dy, bool want_dx) {
  LinearOperand gradient{dy, {}};
  if (second && fuses_gelu()) {
    add_bias_gradient(*engine, *second, dy);
    const Tensor h = std::exchange(hidden, {});
    const Tensor dh =
        linear_backward(*engine, *second, dy, std::exchange(kept_second, {}), true, &h);
    add_bias_gradient(*engine, *first, dh);
    gradient = {dh, {}};
  } else if (second) {
    add_bias_gradient(*engine, *second, dy);
    gradient = activation_gradient(
        linear_backward(*engine, *second, dy, std::exchange(kept_second, {}), true));
  } else {
    add_bias_gradient(*engine, *first, dy);
  }
  const Tensor d_normed =
      linear_backward(*engine, *first, gradient, std::exchange(kept_first, {}), want_dx);
  if (!want_dx) return {};
  if (!norm.gamma) return d_sum.defined() ? at::add(d_normed, d_sum) : d_normed;
  return norm_backward(*engine, norm, d_normed, d_sum, std::exchange(normed, {}));
}

struct PreNormLayersNode : Function<PreNormLayersNode> {
  static variable_list forward(AutogradContext* context, const Tensor& x,
                               const std::optional<Tensor>& delta,
                               const Tensor& /*connects the graph*/,
                               const c10::intrusive_ptr<PreNormLayers>& layers) {
    context->saved_data["layers"] = c10::IValue::make_capsule(layers);
    context->set_materialize_grads(false);  // the last sum may have no reader: no zeros for it
    Tensor y = layers->forward(x, delta.value_or(Tensor()));
    Tensor sum = layers->normed.sum;
    // The result knows its node: not to be held by it.
    layers->normed.sum = layers->norm.gamma ? sum.detach() : Tensor();
    return {sum, y};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto layers = c10::static_intrusive_pointer_cast<PreNormLayers>(
        context->saved_data["layers"].toCapsule());
    const Tensor d_sum = grads[0].defined() ? grads[0].contiguous() : Tensor();
    const bool wanted = (layers->norm.gamma && layers->norm.gamma->trainable) ||
                        context->needs_input_grad(0) ||
                        (layers->has_delta && context->needs_input_grad(1));
    const Tensor dx = layers->backward(d_sum, grads[1].contiguous(), wanted);
    return {dx, layers->has_delta ? dx : Tensor(), Tensor(), Tensor()};
  }
};

std::pair<Tensor, Tensor> run(const c10::intrusive_ptr<PreNormLayers>& layers, const Tensor& x,
                              const Tensor& delta) {
  layers->training = at::GradMode::is_enabled();
  if (!layers->training) {
    Tensor y = layers->forward(x, delta);
    return {layers->normed.sum, y};
  }
  const auto given = delta.defined() ? std::optional<Tensor>(delta) : std::nullopt;
  const auto out = PreNormLayersNode::apply(x, given, layers->trained_leaf(), layers);
  return {out[0], out[1]};
}

c10::intrusive_ptr<PreNormLayers> make_layers(const Engine& engine, const Norm& norm,
                                              const LinearPtr& first) {
  auto layers = c10::make_intrusive<PreNormLayers>();
  layers->engine = &engine;
  layers->norm = norm;
  layers->first = first;
  return layers;
}

}  // namespace

class MlpPasses::Layers {
 public:
  Layers(const Engine& engine, const Mlp& mlp, bool training) {
    of_.engine = &engine;
    of_.first = mlp.up;
    of_.second = mlp.down;
    of_.activation = mlp.activation;
    of_.training = training;
  }
  Tensor forward(const Tensor& x) {
    Tensor y = of_.forward(x, {});
    of_.normed = {};
    return y;
  }
  Tensor backward(const Tensor& dy) { return of_.backward({}, dy, true); }
  void set_idle(bool idle) const {
    for (const LinearPtr& layer : {of_.first, of_.second})
      if (layer->fp8 != nullptr) layer->fp8->set_idle(idle);
  }

 private:
  PreNormLayers of_;  // without a norm
};

MlpPasses::MlpPasses(const Engine& engine, const Mlp& mlp, bool training)
    : layers_(std::make_unique<Layers>(engine, mlp, training)) {}
MlpPasses::~MlpPasses() = default;
MlpPasses::MlpPasses(MlpPasses&&) noexcept = default;
MlpPasses& MlpPasses::operator=(MlpPasses&&) noexcept = default;

Tensor MlpPasses::forward(const Tensor& x) {
  return layers_->forward(x);
}

Tensor MlpPasses::backward(const Tensor& dy) {
  return layers_->backward(dy);
}

void MlpPasses::idle_forward(const Tensor& like) {
  layers_->set_idle(true);
  layers_->forward(at::zeros({1, like.size(1)}, like.options()));
  layers_->set_idle(false);
}

void MlpPasses::idle_backward(const Tensor& like) {
  layers_->set_idle(true);
  layers_->backward(at::zeros({1, like.size(1)}, like.options()));
  layers_->set_idle(false);
}

std::pair<Tensor, Tensor> norm_linear(const Engine& engine, const Tensor& x, const Tensor& delta,
                                      const Norm& norm, const LinearPtr& layer) {
  return run(make_layers(engine, norm, layer), x, delta);
}

std::pair<Tensor, Tensor> norm_mlp(const Engine& engine, const Tensor& x, const Tensor& delta,
                                   const Norm& norm, const Mlp& mlp) {
  auto layers = make_layers(engine, norm, mlp.up);
  layers->second = mlp.down;
  layers->activation = mlp.activation;
  return run(layers, x, delta);
}

}  // namespace octavo::nn

#include "diagnose/observer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/error.h"

namespace octavo::diagnose {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Role;

float largest_magnitude(const Tensor& tensor) {
  return tensor.detach().abs().max().to(at::kFloat).item<float>();
}

}  // namespace

Observer::Observer(const engine::Engine& engine, const nn::LinearList& layers, Options options)
    : engine_(engine), options_(std::move(options)) {
  const auto all = variants(options_.in_use);
  for (const auto& layer : layers) {
    const auto w = layer->weight->sizes();
    places_[layer.get()] = layers_.size();
    layers_.push_back({layer, {}, {}, stats_for(layer->name, w[0], w[1], all)});
    for (VariantStats& v : layers_.back().stats.variants)
      if (engine.target.device.is_cuda() && !fp8::is_rehearsed_on_gpus(v.variant.recipe))
        v.refusal = "is rehearsed on CPUs: take device cpu";
    layer->observer = this;
  }
}

Observer::~Observer() {
  for (const ObservedLayer& s : layers_) s.layer->observer = nullptr;
}

Observer::ObservedLayer& Observer::observed(const nn::Linear& layer) {
  const auto place = places_.find(&layer);
  OCTAVO_ASSERT(place != places_.end());
  return layers_[place->second];
}

void Observer::remember(ObservedLayer& observed, Role role, const Tensor& tensor) {
  float& amax = observed.amax[static_cast<size_t>(role)];
  amax = std::fmax(amax, largest_magnitude(tensor));
}

void Observer::start_observing(const std::vector<std::pair<std::string, Tensor>>& state) {
  constexpr std::string_view kPrefix = "factor.";
  for (const auto& [name, tensor] : state)
    if (name.starts_with(kPrefix)) factors_[name.substr(kPrefix.size())] = tensor.item<float>();
  looking_ = true;
}

FactorOf Observer::factor_of(const ObservedLayer& observed) const {
  return [this, &observed](const Variant& variant, Role role, Direction direction) {
    const fp8::Format format = side_of(variant.recipe, variant.format, role, direction).format;
    const bool own_slot =
        direction == Direction::kColumn &&
        format != side_of(variant.recipe, variant.format, role, Direction::kRow).format;
    if (variant == variant_of(options_.in_use)) {
      const auto found = factors_.find(
          octavo::str(observed.stats.layer, ".", fp8::name_of(role), own_slot ? ".column" : ""));
      if (found != factors_.end()) return found->second;
    }
    return factor_from_amax(variant, format, observed.amax[static_cast<size_t>(role)]);
  };
}

void Observer::on_input(nn::Linear& layer, const Tensor& x) {
  OCTAVO_ASSERT(x.defined());  // of a step that takes statistics
  ObservedLayer& it = observed(layer);
  const Tensor w = layer.weight->weights();
  if (!looking_) {
    remember(it, Role::kInput, x);
    remember(it, Role::kWeight, w);
    if (options_.on_layer) options_.on_layer(layer.name);
    return;
  }
  if (layer.weight->trainable) it.x = x.detach();
  if (options_.keep_tensors) {
    tensors_[layer.name + ".input"] = x.detach().to(at::kCPU, at::kBFloat16, false, true);
    tensors_[layer.name + ".weight"] = w.detach().to(at::kCPU, at::kBFloat16, false, true);
  }
  measure_forward(engine_, x, w, factor_of(it), it.stats);
  if (options_.hopper != nullptr)
    measure_hopper_forward(engine_, *options_.hopper, x, w, factor_of(it), it.stats);
  if (options_.on_layer) options_.on_layer(layer.name);
}

void Observer::on_gradient(nn::Linear& layer, const Tensor& dy) {
  OCTAVO_ASSERT(dy.defined());
  ObservedLayer& it = observed(layer);
  if (!looking_) {
    remember(it, Role::kGradient, dy);
    if (options_.on_layer) options_.on_layer(layer.name);
    return;
  }
  if (options_.keep_tensors)
    tensors_[layer.name + ".gradient"] = dy.detach().to(at::kCPU, at::kBFloat16, false, true);
  const Tensor x = std::exchange(it.x, {}), w = layer.weight->weights();
  measure_backward(engine_, dy, x, w, factor_of(it), it.stats);
  if (options_.hopper != nullptr)
    measure_hopper_backward(engine_, *options_.hopper, dy, x, w, factor_of(it), it.stats);
  if (options_.on_layer) options_.on_layer(layer.name);
}

std::vector<LayerStats> Observer::take_stats() {
  std::vector<LayerStats> all;
  for (ObservedLayer& s : layers_) all.push_back(std::move(s.stats));
  return all;
}

std::vector<std::pair<std::string, Tensor>> Observer::take_tensors() {
  return {tensors_.begin(), tensors_.end()};
}

}  // namespace octavo::diagnose

#include "nn/probes.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace octavo::nn {
namespace {

at::Tensor slot_of(const Linear& layer, Pass pass) {
  return layer.probe.narrow(0, static_cast<int64_t>(pass), 1);
}

// Elements that lie one row apart less a column: at least one of every row, and in turn of every
// column.
at::Tensor sampled(const at::Tensor& result) {
  const int64_t stride = std::max<int64_t>(result.size(1) - 1, 1);
  return result.flatten().slice(0, 0, std::nullopt, stride);
}

}  // namespace

void note_result(Linear& layer, Pass pass, const at::Tensor& result) {
  if (!layer.probe.defined() || !result.defined()) return;
  const at::NoGradGuard no_grad;
  slot_of(layer, pass).add_(sampled(result).sum(at::kFloat));
}

void note_infinity(Linear& layer, Pass pass) {
  if (!layer.probe.defined()) return;
  slot_of(layer, pass).fill_(std::numeric_limits<float>::infinity());
}

Probes::Probes(const LinearList& layers, ProbeUse use) : layers_(layers), use_(use) {
  OCTAVO_ASSERT(!layers.empty());
  slots_ = at::zeros({static_cast<int64_t>(layers.size()), 2},
                     layers.front()->weight->leaf.options().dtype(at::kFloat).requires_grad(false));
  nothing_ = at::zeros({1}, slots_.options().dtype(at::kDouble));
  look(use == ProbeUse::kEveryStep);
}

Probes::~Probes() {
  look(false);
}

void Probes::look(bool yes) {
  if (yes == looking_) return;
  looking_ = yes;
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i]->probe = yes ? slots_.select(0, static_cast<int64_t>(i)) : at::Tensor();
}

void Probes::begin_step(bool repeated) {
  look(repeated || use_ == ProbeUse::kEveryStep);
  if (looking_) slots_.zero_();
}

at::Tensor Probes::total() const {
  return looking_ ? slots_.sum(at::kDouble).reshape({1}) : nothing_;
}

std::optional<int64_t> Probes::first_bad() const {
  OCTAVO_ASSERT(looking_);
  const at::Tensor slots = slots_.cpu();
  const auto* value = slots.const_data_ptr<float>();
  const auto count = static_cast<int64_t>(layers_.size());
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(value[2 * i])) return i;
  for (int64_t i = count - 1; i >= 0; --i)
    if (!std::isfinite(value[2 * i + 1])) return 2 * count - i;
  return std::nullopt;
}

std::string Probes::name_of_place(int64_t place) const {
  const auto count = static_cast<int64_t>(layers_.size());
  const auto layer = [&](int64_t i) { return layers_[static_cast<size_t>(i)]->name; };
  if (place < count) return octavo::str("the forward pass at ", layer(place));
  if (place == count) return "the head or the loss";
  return octavo::str("the backward pass at ", layer(2 * count - place));
}

}  // namespace octavo::nn

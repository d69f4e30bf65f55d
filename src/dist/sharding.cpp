#include "dist/sharding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "nn/fp8_layer.h"

namespace octavo::dist {

using at::Tensor;
using config::ShardingMode;

nn::Storage::Shards shards_of(ShardingMode mode, const World& world) {
  nn::Storage::Shards shards{.count = world.shards(), .index = world.shard()};
  const bool full = mode == ShardingMode::kFsdpFull || mode == ShardingMode::kHybrid;
  shards.weights = full;
  shards.gradients = full || mode == ShardingMode::kZero2;
  shards.masters = shards.gradients || mode == ShardingMode::kZero1;
  return shards;
}

Sharding::Sharding(World& world, const nn::ParamList& params, const nn::LinearList& layers,
                   const ShardingOptions& options)
    : world_(world), options_(options) {
  std::map<const nn::Param*, nn::Linear*> layer_of;
  for (const auto& layer : layers) layer_of[layer->weight.get()] = layer.get();
  for (const auto& p : params) {
    const auto unit = static_cast<size_t>(p->unit);
    if (units_.size() <= unit) units_.resize(unit + 1);
    if (p->chunk > 0)
      units_[unit].spread.push_back({p, layer_of.contains(p.get()) ? layer_of[p.get()] : nullptr});
    else if (p->trainable)
      whole_.push_back(p);
    if (p->chunk == 0) p->counts_here = world.shard() == 0;
  }
  for (Unit& unit : units_) {
    unit.here = keeps_weights();
    for (Part& part : unit.spread) {
      if (part.layer == nullptr || part.layer->fp8 == nullptr || keeps_weights()) continue;
      const std::string reason = options_.fp8_gather ? part.layer->fp8->no_parts_reason(*part.param)
                                                     : "fp8_all_gather off";
      part.has_fp8_part = reason.empty();
      ++(reason.empty() ? fp8_layers_ : plain_layers_);
      if (fp8_gather_reason_.empty() && !reason.empty())
        fp8_gather_reason_ = octavo::str(part.layer->name, ": ", reason);
    }
  }
  if (plain_layers_ > 0)
    log_warn(octavo::str("fp8_all_gather: ", plain_layers_, " of ", plain_layers_ + fp8_layers_,
                         " FP8 weights are gathered in BF16 (", fp8_gather_reason_, ")"));
}

Sharding::~Sharding() = default;

bool Sharding::keeps_weights() const {
  return !shards_of(options_.mode, world_).weights;
}
bool Sharding::keeps_gradients() const {
  return !shards_of(options_.mode, world_).gradients;
}

std::string Sharding::name_of(size_t unit) const {
  if (unit == 0) return "embedding";
  // Of a block "layers.3", from "layers.3.mlp.up.weight".
  const auto& spread = units_[unit].spread;
  const std::string name = spread.empty() ? octavo::str("unit ", unit) : spread[0].param->name;
  const size_t second = name.find('.', name.find('.') + 1);
  return second == std::string::npos ? name : name.substr(0, second);
}

void Sharding::begin_pass(bool last) {
  last_pass_ = last;
  for (Unit& unit : units_) unit.reduced = false;
}

void Sharding::sum_squares(Tensor& squares) {
  world_.gathering().all_reduce("gradient norms", {squares}).wait();
}

void Sharding::weights_changed() {
  magnitudes_known_ = false;
  if (options_.mode == ShardingMode::kDdp) return;
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!keeps_weights()) {
      release(u);  // a gather that was started ahead of a pass that ended before
      continue;
    }
    finish_gather(u);
    units_[u].here = false;
    start_gather(u, false);
  }
}

// The head follows the last block: it is a unit of its own, or the embedding.
size_t Sharding::next_of(size_t unit, bool is_head) const {
  const size_t head = units_.size() - 1;
  if (is_head || unit == head) return units_.size();
  if (unit + 1 == head && units_[head].spread.empty()) return 0;
  return unit + 1;
}

void Sharding::before_forward(int64_t number) {
  const auto unit = static_cast<size_t>(number);
  if (keeps_weights()) {
    finish_gather(unit);
    return;
  }
  const bool is_head = unit == 0 && last_visited_ + 2 == units_.size();
  last_visited_ = unit;
  start_gather(unit, false);
  if (const size_t next = next_of(unit, is_head); next < units_.size()) start_gather(next, false);
  finish_gather(unit);
}

void Sharding::after_forward(int64_t number) {
  const auto unit = static_cast<size_t>(number);
  if (keeps_weights()) return;
  // The backward pass begins with the last block: what it needs of it may stay.
  const bool is_last_block = unit + 2 == units_.size();
  if (at::GradMode::is_enabled() && is_last_block && serves_backward(units_[unit])) return;
  release(unit);
}

bool Sharding::serves_backward(const Unit& unit) const {
  return std::ranges::all_of(unit.spread, [&](const Part& part) {
    return !travels_in_fp8(part) || part.layer->fp8->one_part_serves_both();
  });
}

void Sharding::before_backward(int64_t number) {
  const auto unit = static_cast<size_t>(number);
  if (keeps_weights()) return;
  start_gather(unit, true);
  if (unit > 1) start_gather(unit - 1, true);
  finish_gather(unit);
}

void Sharding::after_backward(int64_t number) {
  const auto unit = static_cast<size_t>(number);
  // An embedding may be the head too: its gradient is complete when the pass is.
  if (unit == 0) return;
  if (!keeps_weights()) release(unit);
  start_reduction(unit);
}

void Sharding::end_pass() {
  // In the order of the backward pass, whichever of them were told of.
  for (size_t u = units_.size(); u-- > 0;) {
    if (!keeps_weights()) release(u);
    start_reduction(u);
  }
  if (last_pass_ || !keeps_gradients()) finish_reductions(0);
  if (!last_pass_) return;
  sum_whole_gradients();
  if (options_.mode == ShardingMode::kHybrid) sum_over_nodes();
}

void Sharding::sum_whole_gradients() {
  std::vector<Tensor> flat;
  for (const auto& p : whole_) {
    OCTAVO_ASSERT(!p->grad_fresh);
    flat.push_back(p->grad.reshape({-1}).to(at::kFloat));
  }
  if (flat.empty()) return;
  Tensor all = at::cat(flat);
  world_.reducing().all_reduce("gradients of vectors", {all}).wait();
  if (options_.mode == ShardingMode::kHybrid)
    world_.replicas().all_reduce("gradients of vectors", {all}).wait();
  int64_t first = 0;
  for (const auto& p : whole_) {
    p->grad.copy_(all.narrow(0, first, p->count()).view(p->sizes()));
    first += p->count();
  }
}

void Sharding::sum_over_nodes() {
  std::vector<Pending> pending;
  for (size_t u = units_.size(); u-- > 0;) {
    std::vector<Tensor> own;
    for (const Part& part : units_[u].spread)
      if (part.param->trainable) own.push_back(part.param->own_grad);
    pending.push_back(world_.replicas().all_reduce(name_of(u), std::move(own)));
  }
  for (Pending& p : pending) p.wait();
}

Json Sharding::receipt() const {
  Json json = {{"mode", config::name_of(options_.mode)},
               {"shards", world_.shards()},
               {"gradients_travel_in", options_.reduce_dtype == at::kFloat ? "fp32" : "bf16"}};
  if (!keeps_weights()) {
    json["weights_travel_in_fp8"] = fp8_layers_;
    json["fp8_weights_that_travel_in_bf16"] = plain_layers_;
    if (plain_layers_ > 0) json["why"] = fp8_gather_reason_;
  }
  return json;
}

}  // namespace octavo::dist

// The side of Sharding that brings weights and lets them go.

#include <ATen/ATen.h>

#include "dist/sharding.h"
#include "nn/fp8_layer.h"

namespace octavo::dist {

using at::Tensor;
using fp8::Direction;

namespace {

Tensor room_for_all(const Tensor& part, int ranks) {
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes[0] *= ranks;
  return at::empty(sizes, part.options());
}

}  // namespace

bool Sharding::travels_in_fp8(const Part& part) const {
  return part.has_fp8_part && !plain_ && part.layer->fp8 != nullptr;
}

// A per-tensor or per-column scale is of all rows: one maximum over ranks for all layers.
void Sharding::agree_on_magnitudes() {
  magnitudes_known_ = true;
  std::vector<Tensor> all;
  std::vector<nn::Fp8Layer*> layers;
  for (const Unit& unit : units_)
    for (const Part& part : unit.spread)
      if (travels_in_fp8(part))
        if (auto m = part.layer->fp8->magnitudes(*part.param)) {
          all.push_back(std::move(*m));
          layers.push_back(part.layer->fp8.get());
        }
  if (all.empty()) return;
  Tensor flat = at::cat(all);
  world_.gathering().all_reduce("magnitudes of weights", {flat}, Op::kMax).wait();
  int64_t first = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i]->agree(flat.narrow(0, first, all[i].numel()));
    first += all[i].numel();
  }
}

void Sharding::gather_part(const Part& part, bool backward, PendingGather& gather) const {
  nn::Param& p = *part.param;
  const int ranks = world_.shards();
  if (!travels_in_fp8(part)) {
    if (!p.padded.defined()) p.padded = room_for_all(p.own, ranks);
    gather.weights.outputs.push_back(p.padded);
    gather.weights.inputs.push_back(p.own);
    gather.plain.push_back(part.param);
    return;
  }
  const auto add = [&](Direction direction) {
    const nn::Fp8Layer::Part own = part.layer->fp8->part(p, direction);
    nn::Fp8Layer::Part whole{room_for_all(own.codes, ranks), own.scales, own.shared_scales};
    gather.codes.outputs.push_back(whole.codes);
    gather.codes.inputs.push_back(own.codes);
    if (!own.shared_scales) {
      whole.scales = room_for_all(own.scales, ranks);
      // Bytes go with the codes.
      auto& call = own.scales.scalar_type() == at::kByte ? gather.codes : gather.scales;
      call.outputs.push_back(whole.scales);
      call.inputs.push_back(own.scales);
    }
    gather.fp8.push_back({part.layer, direction, whole});
  };
  const bool both = part.layer->fp8->one_part_serves_both();
  if (!backward || both || options_.recompute) add(Direction::kRow);
  if (backward && !both) add(Direction::kColumn);
}

void Sharding::start_gather(size_t number, bool backward) {
  Unit& unit = units_[number];
  if (unit.gather != nullptr || unit.here || unit.spread.empty()) return;
  if (!magnitudes_known_) agree_on_magnitudes();
  auto gather = std::make_unique<PendingGather>();
  for (const Part& part : unit.spread) gather_part(part, backward, *gather);
  Group& group = world_.gathering();
  const std::string name = name_of(number);
  for (auto* call : {&gather->weights, &gather->codes, &gather->scales})
    call->pending = group.all_gather(name, call->outputs, call->inputs);
  unit.gather = std::move(gather);
}

void Sharding::finish_gather(size_t number) {
  Unit& unit = units_[number];
  if (unit.gather == nullptr) return;
  const auto gather = std::move(unit.gather);
  for (auto* call : {&gather->weights, &gather->codes, &gather->scales}) call->pending.wait();
  for (const auto& p : gather->plain) p->compute = p->padded.narrow(0, 0, p->sizes()[0]);
  for (const auto& it : gather->fp8)
    it.layer->fp8->adopt(*it.layer->weight, it.direction, it.whole);
  unit.here = true;
}

void Sharding::release(size_t number) {
  Unit& unit = units_[number];
  if (unit.gather != nullptr) finish_gather(number);
  if (!unit.here) return;
  for (const Part& part : unit.spread) {
    part.param->compute.reset();
    part.param->padded.reset();
    if (part.layer != nullptr && part.layer->fp8 != nullptr) part.layer->fp8->forget_weight();
  }
  unit.here = unit.spread.empty();
}

}  // namespace octavo::dist

#include "plan/traffic.h"

#include <algorithm>

#include "plan/fp8_layers.h"

namespace octavo::plan {
namespace {

// Bytes of scales for each weight that travels as a code.
double scale_bytes(const fp8::RecipeTraits& recipe, double hidden) {
  const double each = recipe.scale_type == fp8::ScaleType::kFp32 ? 4 : 1;
  switch (recipe.weights) {
    case fp8::Granularity::kTensor:
      break;
    case fp8::Granularity::kVector:
      return each / 2 / hidden;  // those of rows travel; those of columns are agreed on
    case fp8::Granularity::kBlock128:
      return each / 128;
    case fp8::Granularity::kBlock32:
      return each / 32;
    case fp8::Granularity::kBlock16:
      return each / 16;
    case fp8::Granularity::kSquare128:
      return each / (128 * 128);
    case fp8::Granularity::kSquare16:
      return each / (16 * 16);
  }
  return 0;
}

}  // namespace

TrafficWork traffic_work(const Workload& work, RecipeOrBf16 codes) {
  TrafficWork sent;
  sent.shape = work.shape;
  const bool alone = work.gpus < 2;
  sent.sharding = alone                              ? Sharding::kNone
                  : work.sharding == Sharding::kNone ? Sharding::kDdp
                                                     : work.sharding;
  const int64_t cut = work.split.tensor * work.split.pipeline;
  sent.ranks = std::max<int64_t>(1, work.gpus / cut);
  sent.cut = static_cast<double>(cut);
  sent.shard_group = sent.sharding == Sharding::kFull ? work.shard_group : 0;
  sent.accumulation = work.accumulation;
  sent.gradient_bytes = work.gradient_bytes;
  sent.recompute = work.recompute == Recompute::kFull;
  if (work.lora_rank > 0)
    sent.adapters = lora_parameters(work.shape, work.lora_rank, work.lora_targets);
  if (!codes || !work.fp8_gather) return sent;
  const fp8::RecipeTraits& traits = fp8::traits_of(*codes);
  const double in_fp8 = fp8_weight_share(work.shape, work.fp8_shares);
  sent.weight_bytes = 2 - in_fp8;
  sent.one_copy = fp8::is_symmetric(traits.weights);
  sent.scale_bytes = in_fp8 * scale_bytes(traits, static_cast<double>(work.shape.hidden));
  return sent;
}

Traffic traffic(const TrafficWork& work) {
  const Shape& s = work.shape;
  const double n = static_cast<double>(work.shard_group > 0 ? work.shard_group : work.ranks);
  const double copies = static_cast<double>(work.ranks) / n;
  const double passes = static_cast<double>(work.accumulation);
  const double layers = static_cast<double>(s.layers);
  const double blocks = static_cast<double>(matrix_parameters(s)) / work.cut;
  const double ends = static_cast<double>(head_parameters(s)) / work.cut;
  const double vectors = static_cast<double>(vector_parameters(s)) / work.cut;
  const double sent = (n - 1) / n;  // of what a ring moves

  Traffic t;
  // What is whole everywhere, vectors or adapters: one all-reduce, in FP32.
  const bool frozen = work.adapters > 0;
  const double whole = frozen ? static_cast<double>(work.adapters) : vectors;
  t.reduce = t.whole = 2 * sent * 4 * whole;
  t.calls = 1;
  if (frozen && work.sharding != Sharding::kFull)
    return work.sharding == Sharding::kNone ? Traffic{} : t;
  const double gradients = frozen ? 0 : (blocks + ends) * work.gradient_bytes;
  switch (work.sharding) {
    case Sharding::kNone:
      return {};
    case Sharding::kDdp:
      t.reduce += 2 * sent * gradients;
      t.calls += layers + 2;
      return t;
    case Sharding::kZero1:
    case Sharding::kZero2: {
      const double times = work.sharding == Sharding::kZero1 ? 1 : passes;
      t.reduce += times * sent * gradients;
      t.gather = sent * 2 * (blocks + ends);
      t.gather_calls = layers + 2;
      t.calls += times * (layers + 2) + t.gather_calls;
      return t;
    }
    case Sharding::kFull:
      break;
  }
  // The last block stays from the forward to the backward pass. An embedding that is the head too
  // comes for both.
  const double stays = work.one_copy ? 1 / layers : 0;
  const double again = !work.one_copy && work.recompute ? 1 : 0;
  t.gather = passes * sent *
             ((2 - stays + again) * blocks * (work.weight_bytes + work.scale_bytes) +
              (s.tied ? 2 : 1) * ends * 2);
  t.reduce += passes * sent * gradients;
  t.gather_calls = passes * (2 * layers + 3);
  t.calls += t.gather_calls + (frozen ? 0 : passes * layers);
  if (copies > 1) {
    const double own = frozen ? 0 : (blocks + ends) / n;
    t.replicas = 2 * (copies - 1) / copies * 4 * (own + whole);
    t.replica_calls = frozen ? 1 : layers + 3;
  }
  return t;
}

}  // namespace octavo::plan

#include "plan/traffic.h"

#include <algorithm>
#include <cmath>

namespace octavo::plan {
namespace {

struct Nodes {
  double count, each;
};

Nodes nodes_of(int64_t ranks, int64_t per_node) {
  const int64_t count = (ranks + per_node - 1) / per_node;
  return {static_cast<double>(count), static_cast<double>(std::min(ranks, per_node))};
}

}  // namespace

double ring_latency(int64_t ranks, int64_t per_node) {
  if (ranks < 2) return 0;
  const Nodes nodes = nodes_of(ranks, per_node);
  return kRingBase + (static_cast<double>(ranks) - nodes.count) * kRingLink +
         (nodes.count - 1) * kRingNetwork;
}

double all_reduce_latency(int64_t ranks, int64_t per_node) {
  if (ranks < 2) return 0;
  const Nodes nodes = nodes_of(ranks, per_node);
  const double tree =
      2 * ((nodes.each - 1) * kTreeLink + std::ceil(std::log2(nodes.count)) * kTreeNetwork);
  return std::min(2 * ring_latency(ranks, per_node), kRingBase + tree);
}

Traffic traffic(const TrafficWork& work) {
  const Shape& s = work.shape;
  const double n = static_cast<double>(work.shard_group > 0 ? work.shard_group : work.ranks);
  const double copies = static_cast<double>(work.ranks) / n;
  const double passes = static_cast<double>(work.accumulation);
  const double layers = static_cast<double>(s.layers);
  const double blocks = static_cast<double>(matrix_parameters(s));
  const double ends = static_cast<double>(head_parameters(s));
  const double vectors = static_cast<double>(vector_parameters(s));
  const double sent = (n - 1) / n;  // of what a ring moves

  Traffic t;
  // What is whole everywhere, vectors or adapters: one all-reduce, in FP32.
  const bool frozen = work.adapters > 0;
  const double whole = frozen ? static_cast<double>(work.adapters) : vectors;
  t.reduce = 2 * sent * 4 * whole;
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
      t.calls += (times + 1) * (layers + 2);
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
  t.calls += passes * ((frozen ? 2 : 3) * layers + 3);
  if (copies > 1) {
    const double own = frozen ? 0 : (blocks + ends) / n;
    t.replicas = 2 * (copies - 1) / copies * 4 * (own + whole);
    t.replica_calls = frozen ? 1 : layers + 3;
  }
  return t;
}

}  // namespace octavo::plan

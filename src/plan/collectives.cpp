#include "plan/collectives.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "plan/traffic.h"

namespace octavo::plan {
namespace {

struct Nodes {
  double count, each;
};

Nodes nodes_of(int64_t ranks, int64_t per_node) {
  const int64_t count = (ranks + per_node - 1) / per_node;
  return {static_cast<double>(count), static_cast<double>(std::min(ranks, per_node))};
}

bool has_nvlink(const Gpu& gpu) {
  return gpu.link_gb_s > 100;
}

// One kind of collective: what it takes on the wire, and the computation that runs beside it.
struct Beside {
  double bytes = 0, latency = 0, window = 0;
};

}  // namespace

double ring_latency(int64_t ranks, int64_t per_node, double inside) {
  if (ranks < 2) return 0;
  const Nodes nodes = nodes_of(ranks, per_node);
  return kRingBase + (static_cast<double>(ranks) - nodes.count) * inside +
         (nodes.count - 1) * kRingNetwork;
}

double all_reduce_latency(int64_t ranks, int64_t per_node, double inside) {
  if (ranks < 2) return 0;
  const Nodes nodes = nodes_of(ranks, per_node);
  const double tree =
      2 * ((nodes.each - 1) * kTreeLink + std::ceil(std::log2(nodes.count)) * kTreeNetwork);
  return std::min(2 * ring_latency(ranks, per_node, inside), kRingBase + tree);
}

Links links_of(const Gpu& gpu, const Calibration& calibration) {
  const double adapter = gpu.network_gb_s * 1e9 * calibration.of("network");
  return {gpu.link_gb_s * 1e9 * calibration.of(has_nvlink(gpu) ? "nvlink" : "pcie"),
          adapter * gpu.gpus_per_node, adapter};
}

CollectiveTime collective_time(const Workload& work, const Calibration& calibration,
                               const ComputeTime& compute) {
  if (work.gpus < 2) return {};
  const Gpu& gpu = *work.gpu;
  const RecipeOrBf16 codes = is_native(gpu, work.recipe) ? work.recipe : kBf16;
  const TrafficWork sent = traffic_work(work, codes);
  const Traffic t = traffic(sent);
  const Links links = links_of(gpu, calibration);
  const int64_t group = sent.shard_group > 0 ? sent.shard_group : sent.ranks;
  // A ring through many nodes enters and leaves each by the adapters of its own GPUs there.
  const int64_t here = std::max<int64_t>(1, gpu.gpus_per_node / work.split.tensor);
  const double out = links.adapter * static_cast<double>(here);
  const double rate = group > here ? std::min(links.inside, out) : links.inside;
  const double hop = has_nvlink(gpu) ? kRingLink : kRingPcie;
  const double ring = ring_latency(group, here, hop);
  const double sum = all_reduce_latency(group, here, hop);
  const bool ddp = sent.sharding == Sharding::kDdp, full = sent.sharding == Sharding::kFull;
  const double steps = static_cast<double>(work.accumulation);

  // Gathers of zero1 and zero2 run while the next step begins; those of fsdp_full under all of it,
  // as its reductions do. ddp and zero1 reduce in the last micro-batch alone (dist/sharding.h).
  const bool each_pass = full || sent.sharding == Sharding::kZero2;
  const double whole_step = compute.forward + compute.backward;
  Beside gathers{t.gather / rate, t.gather_calls * ring, full ? 0 : compute.forward / steps};
  const double reduce_calls = t.calls - t.gather_calls - (t.calls > 0 ? 1 : 0);
  Beside reductions{(t.reduce - t.whole) / rate, reduce_calls * (ddp ? sum : ring),
                    full        ? whole_step
                    : each_pass ? compute.backward
                                : compute.backward / steps};
  if (full) {
    reductions.bytes += gathers.bytes, reductions.latency += gathers.latency;
    gathers = {};
  }
  // What is whole everywhere, and what nodes sum among themselves.
  Beside last{t.whole / rate, t.calls > 0 ? sum : 0, 0};
  last.bytes += t.replicas / links.adapter;
  last.latency += t.replica_calls * all_reduce_latency(sent.ranks / group, 1, hop);
  if (!work.sums_at_end) {
    reductions.bytes += last.bytes, reductions.latency += last.latency;
    last = {};
  }

  const std::string stack(work.stack);
  const double overlap = calibration.of(stack + ".overlap");
  const double contention = calibration.of(stack + ".contention");
  CollectiveTime time;
  for (const Beside& it : {gathers, reductions, last}) {
    const double wire = it.bytes + it.latency, hidden = std::min(wire, overlap * it.window);
    time.bytes += it.bytes, time.latency += it.latency;
    time.exposed += wire - hidden + contention * hidden;
  }
  return time;
}

}  // namespace octavo::plan

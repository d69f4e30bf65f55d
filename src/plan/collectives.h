#pragma once
// How long a step's collectives take, by the bytes and calls of traffic.h, and what of that the
// computation does not hide. docs/reference/scale-tables.md and `octavo plan` both read this.

#include <cstdint>

#include "plan/calibration.h"
#include "plan/gpu.h"
#include "plan/step_time.h"

namespace octavo::plan {

// NCCL 2's seconds of a hop, in a ring and in a tree.
constexpr double kRingBase = 8.4e-6, kRingLink = 3.4e-6, kRingPcie = 5.7e-6, kRingNetwork = 9.6e-6;
constexpr double kTreeLink = 28e-6, kTreeNetwork = 50e-6;
// Seconds until the last rank has the first byte of an all-gather or reduce-scatter: a ring passes
// it from rank to rank, `inside` seconds each in a node. By NCCL's own model (src/graph/tuning.cc,
// protocol Simple).
double ring_latency(int64_t ranks, int64_t per_node, double inside = kRingLink);
// Of an all-reduce, by the faster of two rings and a tree.
double all_reduce_latency(int64_t ranks, int64_t per_node, double inside = kRingLink);

// Bandwidths that collectives reach, bytes/s.
struct Links {
  double inside = 0;   // of a GPU to its neighbours in the node
  double node = 0;     // of all adapters of a node together
  double adapter = 0;  // of one
};
Links links_of(const Gpu& gpu, const Calibration& calibration);

// Seconds of one step's computation on a GPU, all micro-batches together.
struct ComputeTime {
  double forward = 0, backward = 0;  // the second with what is computed again
};

struct CollectiveTime {
  double bytes = 0, latency = 0;  // seconds on the wire
  double exposed = 0;             // that the step takes longer
};
CollectiveTime collective_time(const Workload& work, const Calibration& calibration,
                               const ComputeTime& compute);

}  // namespace octavo::plan

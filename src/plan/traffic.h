#pragma once
// What one rank sends in a step, by formula: bench/comm_bytes.py holds dist's counters against it.
// collectives.h says how long that takes.

#include <cstdint>

#include "plan/gpu.h"
#include "plan/shape.h"
#include "plan/step_time.h"

namespace octavo::plan {

struct TrafficWork {
  Shape shape;
  Sharding sharding = Sharding::kDdp;
  int64_t ranks = 1;
  int64_t shard_group = 0;  // ranks that share one copy of the parameters; 0: all
  int64_t accumulation = 1;
  double gradient_bytes = 4;  // grad_reduce_dtype
  // Of a gathered weight of a block: 2 in BF16; of FP8 codes 1, with `scale_bytes` beside each;
  // between them where fp8_skip leaves layers in BF16.
  double weight_bytes = 2;
  double scale_bytes = 0;
  // FP8 GEMMs read a weight by rows, then by columns, and not every recipe has one copy for
  // both. Then the last block's does not stay, and recomputation gathers both.
  bool one_copy = true;
  bool recompute = false;
  double cut = 1;        // GPUs over which one copy's weights are cut (tensor and pipeline)
  int64_t adapters = 0;  // LoRA's values, which are all that is trained then; 0: all weights are
};

// Bytes that one rank sends, and collectives that it takes part in.
struct Traffic {
  double gather = 0, reduce = 0;  // inside the group that shares a copy
  double replicas = 0;            // between the copies
  double whole = 0;               // of `reduce`: the one sum of what is whole everywhere
  double calls = 0, replica_calls = 0;
  double gather_calls = 0;  // of `calls`
  double total() const { return gather + reduce + replicas; }
};
Traffic traffic(const TrafficWork& work);
// Of a step of `work`, whose weights travel as codes of `codes`; kBf16: as they are.
TrafficWork traffic_work(const Workload& work, RecipeOrBf16 codes);

}  // namespace octavo::plan

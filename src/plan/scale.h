#pragma once
// What a step costs as ranks grow, as the tables of docs/reference/scale-tables.md.

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"
#include "plan/gpu.h"

namespace octavo::plan {

// One model on so many GPUs in one mode.
struct ScaleCase {
  std::string model;
  int64_t gpus = 8, length = 4096;
  config::ShardingMode mode = config::ShardingMode::kFsdpFull;
  bool fp8 = false;             // GEMMs, and weights that travel as codes
  bool bf16_gradients = false;  // made and sent
};

struct ScalePoint {
  double tokens = 0;                            // of a step, over all GPUs
  double gather = 0, reduce = 0, replicas = 0;  // bytes that a GPU sends in a step
  double memory = 0;                            // bytes of a GPU at its fullest
  bool fits = false;
  double compute = 0;          // seconds: all that is not a collective
  double bytes_seconds = 0;    // that the bytes take
  double latency_seconds = 0;  // that rings take until bytes arrive
  double exposed = 0;          // of both, what computing does not hide
  double step = 0;
  double tokens_per_s = 0;  // of a GPU
  double flops_share = 0;   // of the GPU's BF16 peak (MFU)
  double hours_between_failures = 0, goodput = 1;
};
// H100 80 GB in nodes of 8, one sequence for each GPU, gradient_checkpointing, FP32 state.
ScalePoint scale_point(const ScaleCase& it);

// The document with its tables (between <!-- scale NAME --> and <!-- end -->) made again.
std::string with_scale_tables(const std::string& document);

}  // namespace octavo::plan

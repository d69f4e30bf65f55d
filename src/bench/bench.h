#pragma once
// octavo bench: every GEMM of a model in FP8 against BF16 on this machine, whole steps, and from
// how many tokens on FP8 pays.

#include <optional>
#include <string>
#include <vector>

#include "bench/layer_bench.h"
#include "bench/step_bench.h"
#include "config/settings.h"

namespace octavo::bench {

// A linear layer that the model has `layers` times.
struct Entry {
  std::string name;  // "qkv", "attention out", …, "head"
  int64_t layers = 1;
  double per_block = 1;  // experts: so many in each block, which see `share` of the tokens each
  double share = 1;
  std::string refusal;   // why FP8 cannot run it; then BF16 alone is timed
  bool is_head = false;  // FP8 is timed, and training runs it in BF16
  LayerTimes times;
};

// The linear layers of one block at some number of tokens.
struct SweepPoint {
  int64_t tokens = 0;
  double bf16 = 0, fp8 = 0;  // seconds; fp8 with its quantizing
  Spread ratio;              // BF16 over FP8
};

struct Bench {
  std::string model, device, kernels;  // kernels: "te", "aten", "rehearsal"
  std::string recipe, format;
  bool is_rehearsal = true, frozen = false;
  int64_t batch = 0, length = 0, passes = 1;
  std::vector<Entry> entries;
  std::vector<SweepPoint> sweep;
  std::string sweep_end;  // why it ended where it did; "" at its last point
  std::optional<StepTimes> steps;

  int64_t tokens() const { return batch * length; }
  // Of the sweep. A rehearsal has BF16's work and its own on top: what looks like a lead is noise.
  std::optional<double> pays_from_tokens() const;
};

// The number of tokens from which on FP8 is ahead in three of four rounds at every point, between
// two points on a logarithmic scale; the first point when it is so everywhere; nothing when it is
// not at the last.
std::optional<double> pays_from(const std::vector<SweepPoint>& sweep);

// Fails (kUsage) where FP8 cannot run at all. Shows progress.
Bench run_bench(const config::Settings& settings);

}  // namespace octavo::bench

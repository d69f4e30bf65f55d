#pragma once
// The time of a training step as a roofline over everything that runs in it: GEMMs with tile
// and wave quantization, attention, elementwise passes, quantization, head, optimizer,
// collectives, the host.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fp8/recipe_traits.h"
#include "plan/calibration.h"
#include "plan/gpu.h"
#include "plan/shape.h"

namespace octavo::plan {

// What the linear layers run in: an FP8 recipe, or BF16.
using RecipeOrBf16 = std::optional<fp8::Recipe>;
inline constexpr RecipeOrBf16 kBf16 = std::nullopt;
enum class Sharding { kNone, kDdp, kZero1, kZero2, kFull };
enum class Recompute { kNone, kSelective, kFull };
// When FP8 codes of a weight are made: once a step (frozen ones once a run), whenever a fully
// sharded weight is gathered, or for each GEMM that reads it.
enum class WeightCodes { kStep, kGather, kGemm };
std::string_view name_of(RecipeOrBf16 recipe);
// The GPU has FP8 units for the recipe; false of BF16.
bool is_native(const Gpu& gpu, RecipeOrBf16 recipe);

// How one model is cut over GPUs, of programs that do so; octavo does not.
struct ModelParallel {
  int64_t tensor = 1;    // GPUs that share each GEMM, with sequence parallelism
  int64_t pipeline = 1;  // stages, and of each so many parts in turn:
  int64_t parts = 1;
  int64_t context = 1;  // GPUs that share a sequence

  double gpus() const { return static_cast<double>(tensor * pipeline * context); }
};

struct Workload {
  Shape shape;
  const Gpu* gpu = nullptr;
  int64_t gpus = 1;
  int64_t batch = 1, length = 1024, accumulation = 1;  // per copy of the model and micro-step
  ModelParallel split;
  RecipeOrBf16 recipe = kBf16;
  std::vector<double> fp8_shares;  // of `recipe` (fp8_layers.h); empty: all layers
  Sharding sharding = Sharding::kNone;
  int64_t shard_group = 0;    // GPUs that share one copy of the parameters; 0: all
  double gradient_bytes = 2;  // of a gradient on its way; published programs send BF16
  bool fp8_gather = false;    // fully sharded FP8 weights travel as codes
  WeightCodes weight_codes = WeightCodes::kStep;
  // Gradients that are whole everywhere, and those between nodes, are summed behind the backward
  // pass, as octavo does it; false: under it.
  bool sums_at_end = false;
  Recompute recompute = Recompute::kNone;
  int64_t lora_rank = 0;
  LoraTargets lora_targets = LoraTargets::kAll;
  double optimizer_bytes = 28;       // read and written per trained value
  bool is_own = false;               // octavo: its host's calls are counted, not fitted
  std::string_view stack = "fused";  // who wrote the software: see calibration.cpp
};

// Seconds of one optimizer step on one GPU.
struct StepTime {
  double gemms = 0, adapters = 0, head = 0, attention = 0, elementwise = 0, quantize = 0,
         optimizer = 0, collectives = 0, host = 0;
  double total = 0;
  double wire_bytes = 0, wire_latency = 0;  // of the collectives alone, hidden or not
  double tokens_per_s = 0;                  // of one GPU
  double flops = 0;  // 2 x multiply-adds of GEMMs, head and attention, no recompute
};

// What a GEMM reads.
enum class GemmType : uint8_t { kReadsBf16, kReadsFp8, kReadsFp4 };
GemmType gemm_type(RecipeOrBf16 recipe);

// One GEMM, C[m,n] = A[m,k] B[k,n], alone on the GPU.
double gemm_seconds(const Gpu& gpu, const Calibration& calibration, double m, double n, double k,
                    GemmType type);
inline double gemm_seconds(const Gpu& gpu, const Calibration& calibration, double m, double n,
                           double k, bool fp8) {
  return gemm_seconds(gpu, calibration, m, n, k, fp8 ? GemmType::kReadsFp8 : GemmType::kReadsBf16);
}

StepTime step_time(const Workload& work, const Calibration& calibration);

}  // namespace octavo::plan

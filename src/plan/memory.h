#pragma once
// The memory of one GPU (or of the process, on a CPU) at its fullest moment, part by part.

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"
#include "plan/shape.h"
#include "plan/step_time.h"

namespace octavo::plan {

// What decides where the bytes go.
struct MemoryWork {
  Shape shape;
  int64_t batch = 1, length = 1024, accumulation = 1;
  bool fp8 = false;
  fp8::Recipe recipe = fp8::kDefaultRecipe;
  std::vector<double> fp8_shares;  // of `recipe` (fp8_layers.h); empty: all layers
  bool recompute = false;
  int64_t lora_rank = 0;
  LoraTargets lora_targets = LoraTargets::kAll;
  bool lora_base_fp8 = false;
  config::StateType master = config::StateType::kFp32, moments = config::StateType::kFp32,
                    gradients = config::StateType::kFp32;
  Sharding sharding = Sharding::kNone;
  int64_t gpus = 1;
  int64_t shard_group = 0;       // GPUs that share one copy of the parameters; 0: all
  bool fp8_gather = true;        // fully sharded FP8 weights come as codes
  double reduced_gradients = 4;  // bytes of a gradient on its way
  bool cpu = false;
  int capability = 90;  // compute capability of the GPU
};
MemoryWork memory_work(const config::Settings& settings, const Shape& shape);

// Bytes.
struct Memory {
  double weights = 0;      // what layers compute with
  double masters = 0;      // FP32 copies that the optimizer owns
  double fp8_weights = 0;  // quantized copies that are kept
  double scales = 0;       // of quantized weights, moments and activations
  double gradients = 0, moments = 0;
  double activations = 0;
  double logits = 0;
  double buffers = 0;        // work space of the fullest moment
  double fragmentation = 0;  // what the allocator holds and nobody uses
  double total = 0;
  std::string moment;  // when it is fullest: "loss", "backward pass", "optimizer"
  double widest = 0;   // the largest tensor of a block, which has to find a place in one piece
};
Memory memory(const MemoryWork& work);

// Whether a run may be advised: with room for a forecast that is not exact, and for an allocator
// that has the bytes but not in one piece.
bool has_room(const Memory& memory, double limit);

}  // namespace octavo::plan

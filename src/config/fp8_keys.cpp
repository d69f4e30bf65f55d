// The keys of FP8, in the order of --help.

#include "config/key_makers.h"
#include "config/verb_keys.h"

namespace octavo::config {
namespace {

using S = Settings;

std::vector<Key> fp8_recipe_keys() {
  return {
      bool_key("use_fp8", &S::use_fp8, "Train in FP8: the same as mixed_precision fp8."),
      enum_key("fp8_recipe", &S::fp8_recipe,
               std::vector(std::begin(kFp8Recipes), std::end(kFp8Recipes)),
               "What shares a scale, and where the scale comes from. delayed: a tensor, from its "
               "amax in earlier steps. current: a tensor, from its amax now. rowwise: a row of an "
               "operand, along the sum. blockwise: 1x128 values, 128x128 of weights. mxfp8: 1x32 "
               "values. nvfp4: E2M1 in blocks of 16, rehearsed on CPUs. Giving it asks for FP8."),
      enum_key("fp8_scenario", &S::fp8_scenario, {Fp8Scenario::kNone, Fp8Scenario::kMxfp8},
               "mxfp8: the same as fp8_recipe mxfp8, and asks for FP8."),
      enum_key(
          "fp8_format", &S::fp8_format,
          {Fp8Format::kAuto, Fp8Format::kHybrid, Fp8Format::kE4m3, Fp8Format::kE5m2},
          "Which FP8 formats tensors have. hybrid: E4M3 forward, E5M2 gradients. e4m3: E4M3 for "
          "all. e5m2: E5M2 activations and gradients; E4M3 weights, and activations in the weight "
          "gradient. auto: hybrid for delayed and current; the other recipes are always e4m3."),
      int_key("fp8_margin", &S::fp8_margin, 0, 16,
              "Of delayed: scales are divided by 2 to this power, which leaves room for values "
              "that grow."),
      int_key("fp8_interval", &S::fp8_interval, 1, int64_t{1} << 40,
              "Of delayed: updates (fp8_update) from one computation of scales to the next."),
      int_key("fp8_amax_history", &S::fp8_amax_history, 1, 65536,
              "Of delayed: updates (fp8_update) whose amax is remembered."),
      enum_key("fp8_amax_algo", &S::fp8_amax_algo, {Fp8AmaxAlgo::kMax, Fp8AmaxAlgo::kMostRecent},
               "Of delayed: the scale comes from the largest amax remembered (max) or from the "
               "newest (most_recent)."),
      enum_key("fp8_update", &S::fp8_update, {Fp8Update::kPass, Fp8Update::kStep},
               "Of delayed: when scales move on. pass: after every micro-batch, as in Transformer "
               "Engine. step: once a step."),
      bool_key("fp4_hadamard", &S::fp4_hadamard,
               "Of nvfp4: a Hadamard matrix rotates what weight gradients read."),
      bool_key("fp4_stochastic_rounding", &S::fp4_stochastic_rounding,
               "Of nvfp4: gradients are rounded at random. false: to nearest."),
      bool_key("fp4_weight_blocks", &S::fp4_weight_blocks,
               "Of nvfp4: 16x16 weights share a scale, in both passes. false: 1x16."),
  };
}

std::vector<Key> fp8_execution_keys() {
  return {
      list_key("fp8_skip", &S::fp8_skip,
               "Layers that stay in BF16, by their names. Globs (* and ?) over names such as "
               "h.0.attn.c_attn, and the words first and last, which are all layers of the first "
               "and of the last block; first:2 and last:8: of so many. Empty, or none: no "
               "layer; but empty means the last 15% of the blocks for nvfp4."),
      enum_key("fp8_execution", &S::fp8_execution,
               {Fp8Execution::kAuto, Fp8Execution::kNative, Fp8Execution::kRehearse},
               "native: on FP8 matrix units, and an error where the device has none for the "
               "recipe. rehearse: quantized in the same way and multiplied on BF16 matrix units, "
               "on every device. auto: native where the device has it, and delayed where it has "
               "that and not mxfp8; BF16 on a GPU without; rehearse on a CPU."),
      enum_key("fp8_backend", &S::fp8_backend,
               {Fp8Backend::kAuto, Fp8Backend::kTe, Fp8Backend::kAten, Fp8Backend::kRehearse},
               "Whose native FP8 kernels. te: Transformer Engine. aten: cuBLASLt, through "
               "libtorch. rehearse: the same as fp8_execution rehearse. auto: te where it is "
               "loaded and has the recipe, else aten."),
      bool_key("use_te", &S::use_te, "The same as fp8_backend te."),
      enum_key("fp8_accumulate", &S::fp8_accumulate, {Fp8Accumulate::kFp32, Fp8Accumulate::kHopper},
               "How a rehearsal on a CPU adds up products. fp32: in FP32. hopper: bit for bit as "
               "Hopper's tensor cores, which is slow: for short runs."),
      int_key("fp8_stats_freq", &S::fp8_stats_freq, 0, int64_t{1} << 40,
              "Steps between full statistics of every FP8 tensor: underflow, saturation, SQNR. 0: "
              "never."),
      enum_key(
          "fp8_guard", &S::fp8_guard, {Fp8Guard::kOff, Fp8Guard::kLog, Fp8Guard::kFallback},
          "What is done about a layer whose statistics stay over their limits: nothing (off); "
          "it is named (log); it is named and moved to BF16 (fallback). A gradient that is not "
          "finite stops the run with off; with log and fallback that step is dropped, and said."),
  };
}

}  // namespace

std::vector<Key> fp8_keys() {
  std::vector<Key> group = fp8_recipe_keys();
  for (Key& key : fp8_execution_keys()) group.push_back(std::move(key));
  return group;
}

}  // namespace octavo::config

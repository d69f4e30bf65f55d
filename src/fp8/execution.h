#pragma once
// What really runs when FP8 is asked for: a pure function of the settings and the device. Whatever
// runs instead of what was asked for comes with a warning, which the caller logs.

#include <string>
#include <vector>

#include "fp8/recipe.h"

namespace octavo::fp8 {

struct Device {
  bool is_gpu = false;
  int major = 0, minor = 0;  // compute capability of a GPU
  bool has_te = false;       // Transformer Engine's library is loaded
  std::string name;
};

struct Request {
  Options wanted{.format = FormatChoice::kAuto};  // the format may still be kAuto
  config::Fp8Execution execution = config::Fp8Execution::kAuto;
  config::Fp8Backend backend = config::Fp8Backend::kAuto;
  config::Fp8Accumulate accumulate = config::Fp8Accumulate::kFp32;
};

enum class Runs : uint8_t { kNative, kRehearsal, kBf16 };

struct Decision {
  Runs runs = Runs::kBf16;
  std::string backend;  // "te", "aten", "rehearsal"; "" for BF16
  Options options;      // with the recipe and the format that run
  std::vector<std::string> warnings;
};

// mixed_precision fp8 or use_fp8.
bool wants_fp8(const config::Settings& settings);
// With use_te and fp8_scenario applied.
Request request_of(const config::Settings& settings);

// The device has matrix units for the recipe, and a library that is there has the kernels.
bool has_native(const Device& device, Recipe recipe);

// Fails (kEnvironment) when native was asked for and the device or its libraries cannot do it, and
// (kUsage) when another GPU's accumulators were asked for and it is no rehearsal on a CPU.
Decision decide(const Request& request, const Device& device);

}  // namespace octavo::fp8

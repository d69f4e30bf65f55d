#pragma once
// What a training run would take and give on GPUs that are not here: memory, speed, FP8's gain.
// Link octavo::plan. A forecast, not a measurement: octavo's documentation says how far it was off.

#include <map>
#include <string>

namespace octavo::v0 {

struct Forecast {
  bool fits = false;
  double memory_bytes = 0, usable_bytes = 0;  // of one GPU: needed at most, and there
  // Of one GPU.
  double tokens_per_second = 0, bf16_tokens_per_second = 0;
  double gain = 1;   // of what would run, over BF16
  std::string text;  // what `octavo plan --details` prints
  std::string json;  // what `octavo plan --json` prints
};

// The keys of `octavo plan`, as on its command line and in a configuration file: {"model_name",
// "llama-3.1-8b"}, {"gpu", "h100"}, {"num_gpus", "8"}, {"use_fp8", "true"}, …. Unknown keys and
// values that do not fit are a std::runtime_error that lists all of them. A model is known by name,
// or by the folder of its config.json.
Forecast forecast(const std::map<std::string, std::string>& settings);

}  // namespace octavo::v0

#pragma once
// What would make a run faster. Each change is tried before it is named: through the model of time
// and memory, and through train's rules.

#include <functional>
#include <string>
#include <vector>

#include "config/settings.h"

namespace octavo::plan {

struct Tried {
  double tokens_per_s = 0, bytes = 0;  // of one GPU
  bool fits = false;                   // with room to spare
};

struct Lever {
  std::string what;           // "gradient_checkpointing false"
  double gain = 1;            // tokens/s over those of the settings as given
  double bytes = 0;           // of one GPU, with the change
  config::Settings settings;  // with the change
};

// Single changes that gain at least 2%, fit and keep the samples of a step, the largest
// gain first. Precision stays as it is, except for another recipe of FP8.
std::vector<Lever> levers(const config::Settings& settings,
                          const std::function<Tried(const config::Settings&)>& try_out);

}  // namespace octavo::plan

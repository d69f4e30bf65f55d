#pragma once
// A tiny model trained in BF16 and in FP8 on this machine, on text that is made up here.

#include <functional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "fp8/recipe.h"
#include "verify/finding.h"

namespace octavo::verify {

// Sentences of few words, the same on every machine.
std::string synthetic_text();

// How one of the runs went.
struct TinyRun {
  std::string name;                      // "bf16", or the recipe
  std::string precision;                 // as the step line shows it: what really ran
  double first_loss = 0, last_loss = 0;  // of the first step; mean of the last ten
  int64_t steps = 0;
  double seconds = 0;
  std::string problem;  // why it did not run to its end
};

// In BF16 first, then in each recipe. `settings`: device and threads.
std::vector<TinyRun> train_tiny(const config::Settings& settings,
                                const std::vector<fp8::Recipe>& recipes,
                                const std::function<void(const std::string&)>& said);

// Whether the runs learned, and how far FP8 ended from BF16. `wants_native`: the device has these
// recipes in its matrix units.
std::vector<Finding> judge_training(const std::vector<TinyRun>& runs, bool wants_native);

}  // namespace octavo::verify

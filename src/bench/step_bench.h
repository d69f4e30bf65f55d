#pragma once
// Whole training steps in BF16 and in FP8, on random tokens.

#include <functional>
#include <string>

#include "bench/layer_bench.h"
#include "config/settings.h"

namespace octavo::bench {

struct StepTimes {
  int64_t steps = 0;  // of each
  bool in_turns = true;
  Spread bf16, fp8, ratio;    // seconds; ratio: BF16 over FP8
  std::string fp8_precision;  // as the step line shows it: what really ran
  std::string problem;        // why there is no result
};

// On a CPU both models are there and take turns; on a GPU, whose memory may hold one, one comes
// after the other. Settings with the weights drawn at random.
StepTimes time_steps(const config::Settings& settings,
                     const std::function<void(const std::string& note)>& said);

}  // namespace octavo::bench

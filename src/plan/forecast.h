#pragma once
// Everything that `octavo plan` says, as numbers: memory, time by part for BF16 and each recipe,
// where FP8's gain goes, money, failures.

#include <optional>
#include <string>
#include <vector>

#include "config/settings.h"
#include "plan/advice.h"
#include "plan/flags.h"
#include "plan/levers.h"
#include "plan/measured.h"
#include "plan/memory.h"
#include "plan/step_time.h"
#include "plan/traffic.h"

namespace octavo::plan {

struct RecipeForecast {
  RecipeOrBf16 recipe = kBf16;
  StepTime time;
  double gain = 1;      // tokens/s over BF16's
  std::string refusal;  // why it would not run here; then the time is that of `runs`
  RecipeOrBf16 runs = kBf16;
};

struct Costs {
  double tokens = 0, hours = 0, gpu_hours = 0, money = 0;  // money 0: no price was given
};

struct Failures {
  double hours_between = 0;        // of the whole job
  double checkpoint_interval = 0;  // seconds, Young and Daly
  double goodput = 1;              // share of the time that moves training on
};

struct Forecast {
  config::Settings settings;  // with the batch settled
  Shape shape;
  const Gpu* gpu = nullptr;
  int64_t gpus = 1, batch = 1, length = 1024, accumulation = 1, lora_rank = 0;
  std::string batch_note;  // what chose the batch; "": batch_size as given
  LoraTargets lora_targets = LoraTargets::kAll;
  Sharding sharding = Sharding::kNone;
  bool wants_fp8 = false;
  bool cpu = false;  // memory is of a process on a CPU; times are of the GPU all the same
  RecipeOrBf16 wanted = kBf16;          // what the config asks for
  Memory bf16_memory, fp8_memory;       // the second with the config's recipe
  double memory_limit = 0;              // bytes that a run can use of the GPU
  Traffic traffic;                      // of one GPU in a step of the config
  Advice advice;                        // when it does not fit: what to change first
  std::vector<Lever> levers;            // when it does: what would make it faster
  Measured measured;                    // what the user's machine was found to do
  std::string stack = "fused";          // whose constants
  std::string program;                  // whose speed it is; "": programs on Transformer Engine
  std::vector<RecipeForecast> recipes;  // BF16 first
  std::vector<std::string> reasons;     // where the gain goes, largest first
  Costs bf16_costs, wanted_costs;
  int64_t cost_steps = 0;  // whose tokens the costs are of; 0: of token_budget, or a billion tokens
  Failures failures;

  const RecipeForecast& chosen() const;
  const Memory& memory() const { return wants_fp8 ? fp8_memory : bf16_memory; }
  bool fits() const { return memory().total <= memory_limit; }
  // What the advice changes, as flags of train.
  std::vector<std::string> advice_flags() const {
    return train_flags(advice.settings, changed_keys(settings, advice.settings));
  }
};

// What the settings cannot say, of a run that another program would make.
struct OtherProgram {
  std::optional<Shape> shape;        // of a model that has sizes and no name
  std::string stack = "fused";       // whose constants: see calibration.cpp
  std::string name;                  // for people; "": octavo's own forecast
  bool selective_recompute = false;  // cheap operations are computed again
  int64_t steps = 0;                 // of the run; 0: not said
};

Forecast forecast(const config::Settings& settings, const OtherProgram& other = {},
                  const Measured& measured = {});
// Young and Daly's interval and the share of useful time.
Failures failures(double hours_between, double checkpoint_seconds, double restart_seconds);

}  // namespace octavo::plan

#pragma once
// The run from its first step to its last: steps, evaluations, samples, checkpoints, stopping.

#include "config/settings.h"

namespace octavo::train {

// Returns the process's exit code: 0 done, 75 stopped on request (a checkpoint was written).
int train(config::Settings settings);

}  // namespace octavo::train

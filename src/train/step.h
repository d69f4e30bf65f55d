#pragma once

#include "monitor/step_record.h"
#include "train/run.h"

namespace octavo::train {

// One optimizer step: every micro-batch forward and backward, gradients summed over ranks, clipped,
// applied.
monitor::StepRecord train_step(Run& run);

}  // namespace octavo::train

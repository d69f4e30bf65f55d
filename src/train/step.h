#pragma once

#include "monitor/step_record.h"
#include "train/run.h"

namespace octavo::train {

// One optimizer step: every micro-batch forward and backward, gradients summed over ranks, clipped,
// applied.
monitor::StepRecord train_step(Run& run);

// A forward and backward pass whose gradients are not for learning: what it takes is measured.
void try_pass(Run& run, const data::Batch& batch);

}  // namespace octavo::train

#pragma once

#include "monitor/step_record.h"
#include "train/run.h"

namespace octavo::train {

// Mean loss over the first eval_batches batches of the validation split, always the same ones.
monitor::EvalRecord evaluate(const Run& run);

}  // namespace octavo::train

#pragma once

#include "monitor/step_record.h"
#include "train/run.h"
#include "train/state/persist.h"

namespace octavo::train {

// Mean loss over the first eval_batches batches of the validation split, always the same ones.
monitor::EvalRecord evaluate(Run& run);

// The same of a model that is not being trained, over the whole split of settings.dataset, or
// eval_limit batches of it. Shows progress.
monitor::EvalRecord evaluate_model(const Loaded& loaded, const config::Settings& settings);

}  // namespace octavo::train

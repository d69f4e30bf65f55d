#pragma once

#include <optional>

#include "monitor/step_record.h"
#include "train/run.h"
#include "train/state/persist.h"

namespace octavo::train {

// Mean loss over the first eval_batches batches of the validation split, always the same ones.
monitor::EvalRecord evaluate(Run& run);
// The same; none when a rank was asked to stop meanwhile.
std::optional<monitor::EvalRecord> evaluate_unless_stopped(Run& run);

// HellaSwag's first eval_hellaswag_rows rows, on every rank alike: where weights come and go, all
// must bring them. None, and why in the log, when the model cannot be asked, or a rank was asked to
// stop meanwhile.
std::optional<monitor::TaskRecord> evaluate_hellaswag(Run& run);

// The same of a model that is not being trained, over the whole split of settings.dataset, or
// eval_limit batches of it. Shows progress.
monitor::EvalRecord evaluate_model(const Loaded& loaded, const config::Settings& settings);

}  // namespace octavo::train

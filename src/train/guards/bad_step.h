#pragma once
// What is done about a step that must not be applied (key bad_steps).

#include <optional>
#include <vector>

#include "train/guards/incident.h"
#include "train/pass.h"

namespace octavo::train {

// Nothing when the step may be applied. The same on all ranks.
std::optional<Incident> judge_step(const Run& run, const StepStats& stats, double loss);

// Drops the step and notes it in run.incidents; ends the run with exit code 4 when it may not go
// on. All ranks call it together.
void skip_step(Run& run, Incident incident, const std::vector<data::Batch>& batches, double tokens);

// After three skipped steps in a row, with bad_steps rollback: the weights, moments and FP8 state
// of the last checkpoint. Step and data continue from where they are, so that what was in between
// is left out.
bool is_suspect(const Run& run);  // no checkpoint is made: it would be what is gone back to
bool rollback_is_due(const Run& run);
void roll_back(Run& run);

}  // namespace octavo::train

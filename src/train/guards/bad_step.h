#pragma once
// What is done about a step that must not be applied (key bad_steps).

#include <optional>
#include <vector>

#include "train/guards/incident.h"
#include "train/pass.h"
#include "train/run.h"

namespace octavo::train {

// Nothing when the step may be learned from, by itself and beside the losses of those before it.
// The same on all ranks.
std::optional<Incident> judge_step(config::BadSteps policy, const monitor::SpikeDetector& losses,
                                   int64_t step, const StepStats& stats, double loss);

// Drops the step and notes it in run.guards.incidents; ends the run with exit code 4 when it may
// not continue. All ranks call it together.
void skip_step(Run& run, Incident incident, const std::vector<data::Batch>& batches, double tokens);

// After three skipped steps in a row, with bad_steps rollback: the weights, moments and FP8 state
// of the last checkpoint. Step and data continue from where they are, so that what was in between
// is left out. In doubt no checkpoint is made: it would be what is gone back to.
bool is_suspect(config::BadSteps policy, const Progress& progress);
bool rollback_is_due(config::BadSteps policy, const Progress& progress);
void roll_back(Run& run);

}  // namespace octavo::train

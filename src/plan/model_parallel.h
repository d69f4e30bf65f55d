#pragma once
// What tensor, context and pipeline parallelism cost beside the computation they share out, of
// programs that have them; octavo has none.

#include "plan/calibration.h"
#include "plan/step_time.h"

namespace octavo::plan {

// Bytes that one GPU receives in a layer of one micro-batch, both passes: `tokens` of its own,
// `again` the share of the forward pass that is computed twice.
double tensor_bytes(const Workload& work, double tokens, double again);
double context_bytes(const Workload& work, double tokens, double again);

// Seconds that the stages of a pipeline wait in a step: while it fills and drains, and for the
// slowest of them. `layers` and `head` are a GPU's average share of the step's computation.
double pipeline_wait(const Workload& work, double layers, double head);

// Seconds of a step that this takes and computing does not hide.
double model_parallel_time(const Workload& work, const Calibration& calibration,
                           const StepTime& time, double tokens, double again);

}  // namespace octavo::plan

#pragma once
// Where a step went wrong and why: the weights are looked at, and the step is done again, first as
// it was and then in BF16. Finite the second time: the machine made a mistake (every kernel here
// gives the same bits twice). Finite in BF16 alone: FP8. Never finite: the model or its data.

#include <vector>

#include "train/guards/incident.h"
#include "train/trained_model.h"

namespace octavo::train {

// Fills in place, ranks, cause and evidence. All ranks call it together, after a step that was not
// finite and before anything of it is applied; gradients are dropped.
void replay_step(const config::Settings& settings, dist::World& world, TrainedModel& trained,
                 const std::vector<data::Batch>& batches, double tokens, Incident& incident);

}  // namespace octavo::train

#pragma once
// The FP8 part of a checkpoint: the recipe, the scaling state of delayed, what the guard did and
// remembers.

#include <string>

#include "checkpoint/checkpoint.h"
#include "train/trained_model.h"

namespace octavo::train {

void save_fp8(const TrainedModel& trained, checkpoint::State& state);

// Takes over what fits, of a resume or a rollback: the checkpoint may be of another precision,
// recipe or format. What starts anew is said.
void resume_fp8(TrainedModel& trained, const checkpoint::State& state, const std::string& source);

}  // namespace octavo::train

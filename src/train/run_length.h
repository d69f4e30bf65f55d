#pragma once
// How long a run is. With max_steps it is so many steps. With num_epochs it is so many samples,
// each of them once in every epoch: counted in samples, so that what was seen before a resume
// counts, whatever a step had then. The run ends with the last sample, in a step that may have
// fewer samples than the others.

#include <cstdint>

#include "train/run.h"

namespace octavo::train {

// Samples that a run of whole epochs sees in all; 0 when max_steps decides.
uint64_t samples_asked(const Run& run);

// Steps of the run in all: those done before a resume, and those that the rest of the samples take.
// Refuses an epoch that is not one whole step.
int64_t steps_asked(const Run& run);

// Of a step on all ranks.
uint64_t samples_per_step(const Run& run);

// Says what is left of a run of whole epochs.
void announce_epochs(const Run& run);

}  // namespace octavo::train

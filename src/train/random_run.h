#pragma once
// A run on tokens that exist nowhere: for steps whose time, memory or numbers are wanted and not
// what they learn.

#include "train/run.h"

namespace octavo::train {

// Engine, model, optimizer, FP8 and a loader, in `run`, which is new. The weights are those of the
// settings; the vocabulary of a preset is plan::vocabulary_of() them.
void start_on_random_tokens(Run& run, const config::Settings& settings,
                            Weights weights = Weights::kOfSettings);

}  // namespace octavo::train

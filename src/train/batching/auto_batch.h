#pragma once
// How many samples a pass takes. auto_batch_size finds the most that fit, by passes that are
// measured; target_effective_batch_size says how many a step takes over all ranks, and accumulation
// keeps it; when memory runs out in the middle of a run, smaller passes make the same steps.

#include "base/json.h"
#include "monitor/step_record.h"
#include "train/run.h"

namespace octavo::train {

// A limit for the tensors of this process on a CPU: memory_limit_gb, or a share of what the machine
// has left when `local_ranks` start at once.
void limit_memory(const config::Settings& settings, int local_ranks);

// Sets batch_size and gradient_accumulation_steps of a run whose model is built and whose training
// has not begun. Every rank calls it, and all come to the same sizes.
void settle_batch_size(Run& run);

// Makes data.loader: batches of the settings' batch_size, from the progress's position on.
void open_loader(const config::Settings& settings, const dist::World& world,
                 const Progress& progress, DataState& data);

// train_step(). When memory runs out in its passes, the step's gradients are dropped and it is done
// again, from the same sample on, in passes of half the size. Of several ranks it leaves a note for
// their restart (train/batching/batch_note.h), and the error is rethrown, as with passes of one
// sample, and as from the update of the weights on: it would be applied twice.
monitor::StepRecord train_step_in_memory(Run& run);

Json batching_receipt(const config::Settings& settings, const Batching& batching, int ranks);

}  // namespace octavo::train

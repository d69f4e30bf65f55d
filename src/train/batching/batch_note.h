#pragma once
// Several ranks cannot do a step again when one of them is out of memory: the others wait in a
// collective. That rank leaves a note beside the checkpoints and ends; launch starts all of them
// again (max_restarts), and they resume from the last checkpoint in the smaller passes of the note.

#include <optional>
#include <string>

#include "config/settings.h"
#include "dist/world.h"
#include "train/batching/batch_search.h"

namespace octavo::train {

// The keys that passes and steps follow from, before they are settled: a note is for them alone.
std::string asked_batches(const config::Settings& settings);

// `step`: in which memory ran out. `asked`: of the run's settings as they were given.
void write_batch_note(const config::Settings& settings, const dist::World& world, int64_t step,
                      const Batches& next, const std::string& asked);

// Of a run that resumes or was restarted; the first rank's answer, on all of them. A run that
// begins anew removes it, and one that asks for other batches does not follow it.
std::optional<Batches> batch_note(const config::Settings& settings, dist::World& world);

}  // namespace octavo::train

#pragma once
// What a run's devices could do at best, for perf/mfu.

#include "monitor/async_sink.h"
#include "train/trained_model.h"

namespace octavo::train {

// Without peaks, and said, for a GPU that the table does not know; on a CPU there are none.
monitor::Peaks peaks_of(const TrainedModel& trained, int64_t length, int ranks);

}  // namespace octavo::train

#pragma once
// The loss of each source of a mixture. It is summed on the device, from the losses that the head
// makes of every token anyway, and rides on the reduction and the copy that a step has for its
// loss.

#include <vector>

#include "models/device_batch.h"
#include "monitor/step_record.h"

namespace octavo::train {

// FP64 [2 * sources] on the device, to be summed over micro-batches and ranks: of each source the
// loss of its tokens, then of each how many they are. `each`: nn::Loss::each.
at::Tensor sums_by_source(const at::Tensor& each, const models::BatchSources& sources);

// `sums`: those of the step, of all ranks; empty: there are none. A source without tokens in it has
// no loss.
void report_losses(const std::vector<double>& sums, std::vector<monitor::SourceUse>& sources);

}  // namespace octavo::train

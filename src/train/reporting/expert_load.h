#pragma once
// How the tokens of a step were spread over experts.

#include <vector>

#include "monitor/step_record.h"
#include "nn/routing.h"

namespace octavo::train {

// `told`: the sums of Routing::end_pass() over `passes` micro-batches of all ranks.
void report_experts(const nn::RoutingSizes& sizes, const std::vector<double>& told, double passes,
                    monitor::StepRecord& record);

}  // namespace octavo::train

#pragma once
// What a run's metrics.jsonl says of its last steps.

#include <string>
#include <vector>

#include "base/file.h"
#include "monitor/step_record.h"

namespace octavo::monitor {

// Step, loss, learning rate, gradient norm, seconds and tokens per second of the steps that the
// last megabytes of the file tell of, up to `last_step`. A file that is not there has none; a line
// that is damaged is left out.
std::vector<StepRecord> read_last_steps(const fs::path& metrics, int64_t last_step);

// Tokens a second of a run to compare with: a number, or the run's folder, whose median counts. ""
// is 0; anything else fails as wrong use.
double baseline_speed(const std::string& number_or_folder);

}  // namespace octavo::monitor

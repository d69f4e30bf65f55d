#pragma once
// Where FP8's gain goes, in sentences.

#include <string>
#include <vector>

#include "plan/step_time.h"

namespace octavo::plan {

// For `work` in its FP8 recipe against BF16: the GEMMs' share and speed first, then what takes
// the gain away, largest first.
std::vector<std::string> gain_reasons(Workload work, const Calibration& calibration);

}  // namespace octavo::plan

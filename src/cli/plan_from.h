#pragma once
// plan --from: what was measured on the user's machine, for a forecast of that machine.

#include <string>

#include "config/settings.h"
#include "plan/measured.h"

namespace octavo::cli {

// `path`: a run's folder, or the JSON of `octavo verify` or `octavo bench`. `settings` names the
// GPU, where the file does not. Fails on what was measured on a CPU, or on no known GPU.
plan::Measured measured_in(const std::string& path, const config::Settings& settings,
                           bool gpu_is_given);

}  // namespace octavo::cli

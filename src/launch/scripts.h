#pragma once
// Files with which schedulers start a run: a script for sbatch and a JobSet for Kubernetes. Both
// run the command again, from its newest checkpoint, when it was stopped on request (75), and
// max_restarts times after an end that a restart may cure (curable_codes).

#include <cstdint>
#include <string>

#include "launch/run.h"

namespace octavo::launch {

inline constexpr int64_t kSchedulerRestarts = 3;  // when max_restarts is not given

std::string slurm_script(const config::Settings& settings, const Work& work);
std::string jobset_manifest(const config::Settings& settings, const Work& work);

std::string shell_quoted(std::string_view text);  // one word for a POSIX shell

}  // namespace octavo::launch

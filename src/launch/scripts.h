#pragma once
// Files with which schedulers start a run: a script for sbatch and a JobSet for Kubernetes. Both
// run the command again, from its newest checkpoint, when it was stopped on request (75), and
// within a budget when a rank or a node was lost (3, a signal).

#include <string>

#include "launch/run.h"

namespace octavo::launch {

std::string slurm_script(const config::Settings& settings, const Work& work);
std::string jobset_manifest(const config::Settings& settings, const Work& work);

std::string shell_quoted(std::string_view text);  // one word for a POSIX shell

}  // namespace octavo::launch

#pragma once
// Several agents on this machine, each with its share of it, until the sweep is done.

#include "sweep/trial_run.h"

namespace octavo::sweep {

// The exit code: 0 every trial ended and one or more finished, 4 none of them finished, 75 stopped
// on request, 3 agents died again and again.
int run_agents(const fs::path& database, int64_t agents, const AgentOptions& options);

// The variables of agent `index` of `agents`: its threads, and its part of the GPUs.
Variables agent_variables(const Variables& here, int64_t index, int64_t agents, int gpus,
                          int cores);

}  // namespace octavo::sweep

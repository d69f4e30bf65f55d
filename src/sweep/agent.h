#pragma once
// An agent takes trials from a sweep's database, one at a time, until none is left.

#include "sweep/trial_run.h"

namespace octavo::sweep {

// The exit code: 0 nothing is left (or `trials` are done), 75 stopped on request, or that of the
// last trial when several in a row could not even begin.
int run_agent(const fs::path& database, const AgentOptions& options);

// Fails when nothing would ever end the sweep: no run_cap, no target, no number of trials.
void check_end(const Store& store, int64_t trials);

// "penalty_weight 0.01, learning_rate 0.003": what varies.
std::string shown_values(const Definition& definition, const Trial& trial);

// The best trial that finished; nullptr: none did.
const Trial* best_trial(const Definition& definition, const std::vector<Trial>& trials);

// Seconds until the sweep ends, from what its trials took; 0 when it cannot be known.
double time_left(const std::vector<Trial>& trials, int64_t total, int64_t agents);

}  // namespace octavo::sweep

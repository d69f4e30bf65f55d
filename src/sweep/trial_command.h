#pragma once
// How a trial becomes a command.

#include "config/settings.h"
#include "launch/rank_info.h"
#include "sweep/store.h"

namespace octavo::sweep {

struct TrialCommand {
  std::vector<std::string> arguments;  // after `octavo train`
  config::Settings settings;           // what they say
  fs::path checkpoints;                // the trial's own folder
};

// Checks everything that train checks before it begins: an Error says what is wrong.
TrialCommand trial_command(const SweepPlan& plan, const Definition& definition,
                           const std::vector<std::string>& values, const std::string& run_name);

// A trial is a run of its own, whatever started the agent: the variables by which launchers tell a
// process that it is a rank are emptied.
Variables trial_variables(const Variables& here);

// A plan for the files, checked as far as it can be before a trial runs. Notes are for the user.
SweepPlan make_plan(const config::Settings& settings, const std::string& sweep_file,
                    const std::string& config_file, const std::vector<std::string>& flags,
                    std::vector<std::string>& notes);

// The configuration must still be the one that the sweep was made with.
void check_config(const SweepPlan& plan);

}  // namespace octavo::sweep

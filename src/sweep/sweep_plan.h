#pragma once
// Everything that is fixed when a sweep is made: what every agent must know to run a trial.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::sweep {

struct SweepPlan {
  std::string source, yaml;         // the sweep's file
  std::string config, config_hash;  // the configuration's full path; "" for none
  std::vector<std::string> flags;   // for every trial
  std::string folder;               // where trials run
  std::string runs_dir;             // of their runs, in that folder or a full path
  int64_t run_cap = 0;              // beats the file's
  int64_t seed = 0, attempts = 3;
  std::string id;  // tells runs of two sweeps of one name apart
};
// Of what decides the trials: two sweeps with the same are the same.
std::string hash_of(const SweepPlan& plan);

std::string plan_text(const SweepPlan& plan);  // JSON
SweepPlan parse_plan(std::string_view text, const std::string& source);
// The name of the trial's run: it can be a folder's.
std::string run_name_of(const std::string& sweep, const std::string& id, int64_t number);

}  // namespace octavo::sweep

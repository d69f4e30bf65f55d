#pragma once
// `compare CONFIG`: trains the pairs itself, one run after the other, as child processes of this
// program. A comparison is one folder with a run folder for each side and seed; what is finished
// there is not run again, what was stopped resumes from its checkpoint.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "config/parse.h"

namespace octavo::compare {

struct PlannedRun {
  std::string name;                    // "a-1337"
  fs::path folder;                     // of the run, inside the comparison's
  std::vector<std::string> arguments;  // of train
};

struct RunPlan {
  fs::path folder;               // of the comparison
  std::vector<PlannedRun> runs;  // in the order in which they are made
  int64_t steps = 0;             // of each; 0: not known beforehand
  std::string config_hash;       // of the file's text
};

// Fails when one of the sides could not be trained as it is told.
RunPlan plan_runs(const config::Parsed& parsed);

// Exits by an Error: kStopped on request, or what a run ended with. A run that a guard ended counts
// as made.
void make_runs(const RunPlan& plan);

// The pairs (A, B) of a comparison's folder, by seed.
std::vector<std::pair<fs::path, fs::path>> pairs_in(const fs::path& folder);

// One child to its end, with its output in `log`; signals are passed to it. `tick` is called a few
// times a second with the last line it printed. The exit code; an Error when a signal ended it.
int run_child(const std::vector<std::string>& command, const fs::path& log, SignalWatch& signals,
              const std::function<void(const std::string& line)>& tick);

}  // namespace octavo::compare

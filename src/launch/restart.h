#pragma once
// When ranks are started again, and from where.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"
#include "launch/outcome.h"

namespace octavo::launch {

// Below it every run has a folder of its own for its checkpoints.
fs::path checkpoint_root(const config::Settings& settings);

// <model>-<precision>-<date-time>.
std::string new_run_name(const config::Settings& settings, const std::string& precision);

// The name of the run that these settings start: run_name, or that of the checkpoint which resume
// names, or a new one.
std::string name_of_run(const config::Settings& settings);
// auto_resume continues the run of a name: without one it would take up, and add to, whichever run
// saved last in that folder.
void want_run_name(const config::Settings& settings);

// Set for a start of which nobody knows whether it is the first one. A run that had not saved yet
// when it ended begins anew then; otherwise it is not written over without overwrite.
inline constexpr const char* kBeginsAnewVariable = "OCTAVO_BEGINS_ANEW";

// Why ranks are started again: "killed: rank 1 was killed by signal 9 (Killed); …". Not set at the
// first start, nor when they are only to be more.
inline constexpr const char* kRestartCauseVariable = "OCTAVO_RESTART_CAUSE";
std::string restart_cause(const Outcome& outcome);

// The whole checkpoints (step folders with a manifest) and when each was written.
using Checkpoints = std::map<int64_t, fs::file_time_type>;
Checkpoints checkpoints_in(const fs::path& folder);
// Those of a run: in root/<run>, or in the root itself from before runs had folders of their own.
Checkpoints checkpoints_of(const fs::path& root, const std::string& run);

// The newest step of `now` that was not in `before`, or was written again since: a checkpoint that
// an older run left in the folder is not this run's.
std::optional<int64_t> newest_step(const Checkpoints& now, const Checkpoints& before);

// The command with `--resume latest` in place of any other --resume, and without --overwrite.
std::vector<std::string> resuming(const std::vector<std::string>& command);

// Restarts are allowed while there are fewer than `most` of them within `window`, and fewer than
// `most` in a row that gained no checkpoint. The first is at once, or after its kind's wait; each
// further one without a gain waits twice as long as the last, up to two minutes, give or take a
// quarter: the runs of a cluster that one file server has failed do not return in the same second.
class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  RestartPolicy(int64_t most, std::chrono::duration<double> window, uint64_t seed);

  struct Decision {
    bool restart = false;
    std::chrono::milliseconds wait{0};  // before it
    std::string reason;                 // why, or why not
  };
  // `step`: the newest checkpoint of this run, if any.
  Decision decide(const Outcome& outcome, std::optional<int64_t> step,
                  Clock::time_point now = Clock::now());
  int64_t restarts() const { return restarts_; }
  // Of a run that waits for its nodes itself (node_wait): none is added for one that is lost.
  void add_no_wait_for_nodes() { waits_for_nodes_ = false; }

 private:
  std::chrono::milliseconds wait_of(const EndRow& row);

  int64_t most_;
  std::chrono::duration<double> window_;
  std::mt19937_64 random_;
  std::deque<Clock::time_point> recent_;  // restarts within the window
  int64_t restarts_ = 0, in_a_row_ = 0, last_step_ = -1;
  bool waits_for_nodes_ = true;
};

}  // namespace octavo::launch

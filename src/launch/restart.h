#pragma once
// When ranks are started again, and from where.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/settings.h"
#include "launch/outcome.h"

namespace octavo::launch {

// Where the run of these settings keeps its checkpoints.
fs::path checkpoint_folder(const config::Settings& settings);

// The whole checkpoints (step folders with a manifest) and when each was written.
using Checkpoints = std::map<int64_t, fs::file_time_type>;
Checkpoints checkpoints_in(const fs::path& folder);

// The newest step of `now` that was not in `before`, or was written again since: a checkpoint that
// an older run left in the folder is not this run's.
std::optional<int64_t> newest_step(const Checkpoints& now, const Checkpoints& before);

// The command with `--resume latest` in place of any other --resume.
std::vector<std::string> resuming(const std::vector<std::string>& command);

class RestartPolicy {
 public:
  explicit RestartPolicy(int64_t most) : most_(most) {}

  struct Decision {
    bool restart = false;
    std::string reason;  // why, or why not
  };
  // `step`: the newest checkpoint of this run, if any.
  Decision decide(const Outcome& outcome, std::optional<int64_t> step);
  int64_t restarts() const { return restarts_; }

 private:
  int64_t most_, restarts_ = 0, last_step_ = -1;
};

}  // namespace octavo::launch

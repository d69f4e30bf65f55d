#pragma once
// Starts the ranks of one node, relays what they print, and sees to it that all end when one fails.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/process.h"
#include "launch/outcome.h"
#include "launch/rank_info.h"

namespace octavo::launch {

struct Job {
  std::vector<std::string> command;       // the program's full path first
  RankInfo first;                         // of this node's first rank; the others follow it
  Variables variables;                    // beside those of the place
  std::string log_dir;                    // "": ranks beyond the first print with a prefix
  std::chrono::milliseconds grace{6000};  // for peers to notice that a rank is gone, and leave
  std::chrono::milliseconds last_grace{20'000};  // from SIGKILL on: a driver may take seconds
  std::function<void(int rank, const std::string& text)> on_death = {};
  // Asked now and then: are the ranks to stop and save, to be started again? `has_made_a_step`:
  // this node's first rank has, since it was started, and does not only end what it does.
  std::function<bool(bool has_made_a_step)> wants_stop = {};
  // Asked every `look` until it says false: do the ranks here still wait for other nodes?
  std::function<bool()> waits_for_nodes = {};
  std::chrono::milliseconds look{5'000};
  // For tests: what sends SIGKILL. No process here can be made to survive it.
  std::function<void(pid_t pid)> kill_group = {};
};

// The signal that was passed on to the ranks is kept in `stop_signal` (0: none).
Outcome supervise(const Job& job, SignalWatch& signals, int& stop_signal);

}  // namespace octavo::launch

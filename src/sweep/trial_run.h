#pragma once
// One attempt at a trial: its process, signs of life, early termination, and what came of it.

#include <chrono>
#include <optional>

#include "base/process.h"
#include "base/watched_child.h"
#include "monitor/metric_file.h"
#include "sweep/store.h"

namespace octavo::sweep {

struct AgentOptions {
  std::string program;   // octavo's full path
  int64_t trials = 0;    // after which the agent ends; 0: when none is left
  double timeout = 120;  // of other agents' signs of life
  int64_t nproc = 0;     // ranks of each trial; 0: one process
};

class TrialRun {
 public:
  // `stop_signal`: the one that asks this agent to stop, kept across trials; 0: none came.
  TrialRun(Store& store, const Trial& trial, const AgentOptions& options, SignalWatch& signals,
           int& stop_signal);

  // The attempt's end, or nothing when the trial was taken away from this agent. An Error
  // (kUsage) when its parameters contradict each other.
  std::optional<Ending> run();
  int exit_code() const { return exit_code_; }  // of the process

 private:
  using Clock = std::chrono::steady_clock;

  void handle_signals(const WatchedChild& child);
  bool send_heartbeat();
  // Marks every band that was reached since; why the trial should stop there, or "".
  std::string judged_at_bands();
  void judge(const WatchedChild& child);
  Ending ending(const WatchedChild& child);

  Store& store_;
  const Trial& trial_;
  const AgentOptions& options_;
  SignalWatch& signals_;
  int& stop_signal_;
  monitor::MetricFile metric_;
  Clock::time_point last_sign_, last_try_, last_look_;
  int64_t judged_band_ = 0;
  std::string early_;  // why it was stopped early
  int exit_code_ = 0;
};

}  // namespace octavo::sweep

#pragma once
// The sweep and its trials in one SQLite file, which agents on one or many machines share. Every
// change is one transaction; a trial belongs to one agent at a time and ends once.

#include "sweep/database.h"
#include "sweep/definition.h"
#include "sweep/propose.h"
#include "sweep/sweep_plan.h"

namespace octavo::sweep {

enum class TrialState { kWaiting, kRunning, kFinished, kStoppedEarly, kFailed };
std::string_view name_of(TrialState state);

struct Trial {
  int64_t number = 0;  // from 1 on
  std::vector<std::string> values;
  std::vector<double> draws;
  TrialState state = TrialState::kWaiting;
  int64_t attempts = 0;  // that began
  std::string agent, run_name, reason;
  std::optional<double> metric;
  int64_t iterations = 0;                        // records of the metric
  double heartbeat = 0, started = 0, ended = 0;  // seconds since 1970; 0: not yet
};

struct Counts {
  int64_t waiting = 0, running = 0, finished = 0, stopped_early = 0, failed = 0;
  int64_t made() const { return waiting + running + ended(); }
  int64_t ended() const { return finished + stopped_early + failed; }
};

// What came of asking for a trial.
struct TrialOffer {
  std::optional<Trial> trial;
  std::vector<std::string> news;  // of trials whose agents are gone, and of a sweep that is full
  Counts counts;                  // afterwards
};

// How an attempt ended.
struct Ending {
  TrialState state = TrialState::kFailed;  // kWaiting: another attempt may follow
  std::string reason;
  std::optional<double> metric;
  int64_t iterations = 0;
  bool forgiven = false;  // stopped on request: not counted as an attempt
};

class Store {
 public:
  // Makes the file, or opens one of the same sweep to continue it; of another is an Error.
  static bool create(const fs::path& path, const SweepPlan& plan);  // true: it is new
  explicit Store(const fs::path& path);

  const SweepPlan& plan() const { return plan_; }
  const Definition& definition() const { return definition_; }
  int64_t total() const { return total_; }  // trials; 0: no bound
  std::vector<Trial> trials() { return trials_where("ORDER BY number"); }
  Counts counts();

  // A trial to continue, or else a new one, or none. Trials of agents that are gone, or silent
  // for `timeout` seconds, are free again, or failed when their attempts are used up.
  TrialOffer claim(const std::string& agent, double timeout);
  // Says that the agent lives. False: the trial is no longer this attempt's.
  bool renew(const Trial& trial);
  bool finish(const Trial& trial, const Ending& ending);  // false as above

  // Keeps the metric at a band and returns those of all trials that reached it.
  std::vector<double> mark(const Trial& trial, int64_t band, double value);

 private:
  // `condition`: what follows SELECT … FROM trials.
  std::vector<Trial> trials_where(const std::string& condition);
  void free_lost_trials(double timeout, std::vector<std::string>& news);
  std::optional<int64_t> next_number(std::vector<std::string>& news);
  bool reached_target();
  void insert(int64_t number);

  Database database_;
  SweepPlan plan_;
  Definition definition_;
  int64_t total_ = 0;
};

double now_seconds();
fs::path run_folder(const SweepPlan& plan, const Trial& trial);

}  // namespace octavo::sweep

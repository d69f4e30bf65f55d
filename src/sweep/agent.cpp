#include "sweep/agent.h"

#include <algorithm>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "chart/ticks.h"
#include "sweep/agent_name.h"
#include "sweep/trial_command.h"

namespace octavo::sweep {
namespace {

constexpr int kMostFailedStarts = 3;  // in a row, after which the rest would fail as well

class Agent {
 public:
  Agent(Store& store, const AgentOptions& options)
      : store_(store), options_(options), name_(own_agent_name()) {}

  int run() {
    while (stop_signal_ == 0) {
      take_signals();
      if (stop_signal_ != 0) break;
      if (options_.trials > 0 && done_ == options_.trials) {
        log_info(str("this agent has run ", done_, " trials, as it was told"));
        return 0;
      }
      const TrialOffer claim = store_.claim(name_, options_.timeout);
      for (const std::string& line : claim.news) log_warn(line);
      if (!claim.trial) return nothing_left(claim.counts);
      attempt(*claim.trial);
      if (failed_starts_ == kMostFailedStarts) {
        log_error(str("the last ", failed_starts_,
                      " trials could not run; the others would not either: this agent ends"));
        return exit_code_;
      }
    }
    log_info("stopped on request; octavo sweep agent continues with what is left");
    return static_cast<int>(ExitCode::kStopped);
  }

 private:
  void take_signals() {
    while (const std::optional<int> number = signals_.take())
      if (*number != SIGCHLD) stop_signal_ = *number;
  }

  int nothing_left(const Counts& counts) const {
    if (counts.running > 0)
      log_info(str("no trial is left to begin; ", counts.running,
                   " still run in other agents. Should one of these die, start an agent again"));
    else
      log_info(str("all ", counts.ended(), " trials have ended: ", counts.finished, " finished, ",
                   counts.stopped_early, " stopped early, ", counts.failed, " failed"));
    return 0;
  }

  void attempt(const Trial& trial) {
    const std::string total = store_.total() > 0 ? str(" of ", store_.total()) : "";
    log_info(str("trial ", trial.number, total, " begins",
                 trial.attempts > 1 ? str(" (attempt ", trial.attempts, ")") : "", ": ",
                 shown_values(store_.definition(), trial), "; run ", trial.run_name));
    std::optional<Ending> ending;
    TrialRun run(store_, trial, options_, signals_, stop_signal_);
    try {
      ending = run.run();
      if (!ending) return;
      exit_code_ = run.exit_code();
    } catch (const Error& error) {
      if (error.code() != ExitCode::kUsage) throw;
      ending = Ending{.reason = error.what()};  // what was drawn contradicts the configuration
      exit_code_ = static_cast<int>(ExitCode::kUsage);
    }
    if (!store_.finish(trial, *ending)) {
      log_warn(
          str("trial ", trial.number,
              " was given to another agent while this one was silent; its result is left out"));
      return;
    }
    const bool could_run = exit_code_ == 0 || exit_code_ == static_cast<int>(ExitCode::kGuard) ||
                           exit_code_ == static_cast<int>(ExitCode::kStopped);
    failed_starts_ = could_run ? 0 : failed_starts_ + 1;
    if (ending->state != TrialState::kWaiting) ++done_;
    tell(trial, *ending);
  }

  void tell(const Trial& trial, const Ending& ending) {
    const std::vector<Trial> trials = store_.trials();
    const Definition& sweep = store_.definition();
    std::string text = str("trial ", trial.number, " ", name_of(ending.state));
    if (ending.metric) text += str(": ", sweep.metric, " ", chart::short_number(*ending.metric));
    if (!ending.reason.empty()) text += str(" (", ending.reason, ")");
    if (const Trial* best = best_trial(sweep, trials))
      text +=
          str("; best: trial ", best->number, ", ", chart::short_number(best->metric.value_or(0)));
    const auto others = std::ranges::count(trials, TrialState::kRunning, &Trial::state);
    const double left = time_left(trials, store_.total(), others + 1);
    if (left > 0) text += str("; about ", format_duration(left), " left");
    const bool bad = ending.state == TrialState::kFailed ||
                     (ending.state == TrialState::kWaiting && !ending.forgiven);
    bad ? log_warn(text) : log_info(text);
  }

  Store& store_;
  const AgentOptions& options_;
  std::string name_;
  SignalWatch signals_;
  int stop_signal_ = 0, failed_starts_ = 0, exit_code_ = 0;
  int64_t done_ = 0;
};

}  // namespace

std::string shown_values(const Definition& sweep, const Trial& trial) {
  std::string text;
  for (size_t p = 0; p < sweep.parameters.size(); ++p)
    if (varies(sweep.parameters[p]))
      text += str(text.empty() ? "" : ", ", sweep.parameters[p].name, " ", trial.values[p]);
  return text.empty() ? "nothing varies" : text;
}

const Trial* best_trial(const Definition& sweep, const std::vector<Trial>& trials) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials)
    if (trial.state == TrialState::kFinished && trial.metric &&
        (best == nullptr || is_better(sweep, *trial.metric, *best->metric)))
      best = &trial;
  return best;
}

double time_left(const std::vector<Trial>& trials, int64_t total, int64_t agents) {
  double spent = 0;
  int64_t ended = 0;
  for (const Trial& trial : trials) {
    if (trial.ended <= trial.started || trial.started == 0) continue;
    spent += trial.ended - trial.started;
    ++ended;
  }
  if (ended == 0 || total <= ended) return 0;
  return spent / static_cast<double>(ended) * static_cast<double>(total - ended) /
         static_cast<double>(std::max<int64_t>(1, agents));
}

void check_end(const Store& store, int64_t trials) {
  if (store.total() > 0 || trials > 0 || store.definition().target) return;
  fail(ExitCode::kUsage, "sweep", store.plan().source, ": method ",
       name_of(store.definition().method),
       " has no end: wanted run_cap in the sweep's file, or --run_cap when the sweep is made, or "
       "--trials of sweep agent, found none of them");
}

int run_agent(const fs::path& database, const AgentOptions& options) {
  const fs::path path = fs::absolute(database);
  Store store(path);
  check_end(store, options.trials);
  std::error_code error;
  fs::current_path(store.plan().folder, error);
  if (error)
    fail(ExitCode::kEnvironment, "sweep", "wanted to run trials in ", store.plan().folder,
         ", where the sweep was made, found: ", error.message());
  check_config(store.plan());
  return Agent(store, options).run();
}

}  // namespace octavo::sweep

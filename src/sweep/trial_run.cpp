#include "sweep/trial_run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "launch/restart.h"
#include "sweep/hyperband.h"
#include "sweep/trial_command.h"

namespace octavo::sweep {
namespace {

constexpr auto kTrialTick = std::chrono::milliseconds(250);
constexpr auto kLook = std::chrono::seconds(1);  // at the metric, when trials are stopped early

fs::path log_path(const SweepPlan& plan, const Trial& trial) {
  return run_folder(plan, trial) / "trial.log";
}

std::vector<std::string> whole_command(const AgentOptions& options, const TrialCommand& trial) {
  std::vector<std::string> words = {options.program};
  if (options.nproc > 0)
    words.insert(words.end(), {"launch", "--nproc", std::to_string(options.nproc), "--"});
  words.emplace_back("train");
  words.insert(words.end(), trial.arguments.begin(), trial.arguments.end());
  return words;
}

}  // namespace

TrialRun::TrialRun(Store& store, const Trial& trial, const AgentOptions& options,
                   SignalWatch& signals, int& stop_signal)
    : store_(store),
      trial_(trial),
      options_(options),
      signals_(signals),
      stop_signal_(stop_signal),
      metric_(run_folder(store.plan(), trial) / "metrics.jsonl", store.definition().metric),
      last_sign_(Clock::now()),
      last_try_(last_sign_),
      last_look_(Clock::now()) {}

std::optional<Ending> TrialRun::run() {
  const SweepPlan& plan = store_.plan();
  TrialCommand command = trial_command(plan, store_.definition(), trial_.values, trial_.run_name);
  const launch::Checkpoints saved = launch::checkpoints_in(command.checkpoints);
  if (!saved.empty()) {
    log_info(str("trial ", trial_.number, " resumes from its checkpoint of step ",
                 saved.rbegin()->first));
    command.arguments = launch::resuming(command.arguments);
  }
  fs::create_directories(run_folder(plan, trial_));
  const auto log = std::make_shared<LogFile>(log_path(plan, trial_));
  WatchedChild child(whole_command(options_, command), trial_variables(launch::environment()), "",
                     log);
  WatchedChild* const watched[] = {&child};
  if (stop_signal_ != 0) child.signal(stop_signal_);
  while (child.update()) {
    wait_for_news(signals_, watched, kTrialTick);
    handle_signals(child);
    if (!send_heartbeat()) {
      log_warn(str("trial ", trial_.number,
                   " was given to another agent while this one was silent; its process is ended"));
      child.end_now();
      return std::nullopt;
    }
    judge(child);
  }
  return ending(child);
}

void TrialRun::handle_signals(const WatchedChild& child) {
  while (const std::optional<int> number = signals_.take()) {
    if (*number == SIGCHLD) continue;
    if (stop_signal_ == 0) {
      stop_signal_ = *number;
      log_info(str(strsignal(*number), ": trial ", trial_.number, " saves and stops"));
      child.signal(*number);
    } else if (*number == SIGINT) {
      log_warn("asked twice: the trial is ended at once");
      child.end_now();
    }
  }
}

bool TrialRun::send_heartbeat() {
  const double every = std::min(10.0, options_.timeout / 6);
  const Clock::time_point now = Clock::now();
  if (std::chrono::duration<double>(now - last_try_).count() < every) return true;
  last_try_ = now;
  const double since = std::chrono::duration<double>(now - last_sign_).count();
  try {
    if (!store_.renew(trial_)) return false;
    last_sign_ = Clock::now();
  } catch (const Error& error) {
    // The file is locked or its disk is away for a while. Others take the trial after the time-out.
    log_warn(str(error.what(), "; the trial continues for now"));
    return since < options_.timeout;
  }
  return true;
}

std::string TrialRun::judged_at_bands() {
  const std::vector<double>& history = metric_.values();
  for (const int64_t band : store_.definition().hyperband.bands) {
    if (band <= judged_band_) continue;
    if (static_cast<size_t>(band) > history.size()) break;
    judged_band_ = band;
    const double own = value_at_band(store_.definition(), band, history);
    const std::vector<double> peers = store_.mark(trial_, band, own);
    if (!survives_band(store_.definition(), own, peers))
      return str("not among the best 1/", store_.definition().hyperband.eta, " of ", peers.size(),
                 " trials at iteration ", band);
  }
  return "";
}

void TrialRun::judge(const WatchedChild& child) {
  const bool judges = !store_.definition().hyperband.bands.empty();
  if (!judges || !early_.empty() || Clock::now() - last_look_ < kLook) return;
  last_look_ = Clock::now();
  metric_.update();
  early_ = judged_at_bands();
  if (early_.empty()) return;
  log_info(str("trial ", trial_.number, ": ", early_, "; it is stopped"));
  child.signal(SIGTERM);
}

Ending TrialRun::ending(const WatchedChild& child) {
  metric_.update();
  exit_code_ = child.by_signal() != 0 ? static_cast<int>(ExitCode::kEnvironment) : child.code();
  Ending end;
  end.iterations = static_cast<int64_t>(metric_.values().size());
  const bool has_values = !metric_.values().empty();
  if (has_values && std::isfinite(metric_.values().back())) end.metric = metric_.values().back();
  const bool resumable =
      child.by_signal() == 0 && child.code() == static_cast<int>(ExitCode::kStopped);
  if (child.by_signal() == 0 && child.code() == 0) {
    while (!judged_at_bands().empty()) {  // too late for itself, but others are measured by it
    }
    end.state = end.metric ? TrialState::kFinished : TrialState::kFailed;
    if (!end.metric && has_values)
      end.reason =
          str("its last ", store_.definition().metric, " is not a finite number: the run diverged");
    else if (!end.metric)
      end.reason = str("no ", store_.definition().metric, " in its metrics.jsonl; see eval_freq, ",
                       "val_fraction and the sweep's metric");
    return end;
  }
  if (resumable && !early_.empty() && stop_signal_ == 0) {
    end.state = TrialState::kStoppedEarly;
    end.reason = early_;
    return end;
  }
  end.reason = str(child.end_text(), "; ", child.last_line());
  if (stop_signal_ != 0) {  // whatever it left with: it resumes from its last checkpoint
    end.state = TrialState::kWaiting;
    end.forgiven = true;
    return end;
  }
  // A guard (4), wrong use (2) and damage (5) would come again; a killed process and a machine that
  // failed (3) may not.
  const bool curable = child.by_signal() != 0 ||
                       child.code() == static_cast<int>(ExitCode::kEnvironment) || resumable;
  end.state = curable && trial_.attempts < store_.plan().attempts ? TrialState::kWaiting
                                                                  : TrialState::kFailed;
  if (curable && end.state == TrialState::kFailed)
    end.reason = str("attempt ", trial_.attempts, " of ", store_.plan().attempts, ": ", end.reason);
  return end;
}

}  // namespace octavo::sweep

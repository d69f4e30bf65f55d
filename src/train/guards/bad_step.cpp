#include "train/guards/bad_step.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "train/guards/replay.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

using config::BadSteps;

// More steps in a row that had to be dropped are no accident.
constexpr int64_t kMostSkippedInARow = 10;
constexpr int64_t kSkippedBeforeRollback = 3;
// Each takes as long as two or three steps.
constexpr std::ptrdiff_t kMaxReplays = 20;

bool was_looked_into(const Incident& incident) {
  return incident.kind == IncidentKind::kNotFinite && incident.cause != Cause::kUnknown;
}

std::string not_finite(int64_t step, const StepStats& stats, double loss) {
  if (!std::isfinite(loss)) return octavo::str("the loss of step ", step, " is ", loss);
  if (!stats.norm.not_finite.empty())
    return octavo::str("the gradient of ", stats.norm.not_finite, " is not finite at step ", step);
  return octavo::str("a result of step ", step, " is not finite");
}

// Whether the run may continue without this step, and why not otherwise.
bool may_skip(const config::Settings& settings, const Progress& progress, bool in_fp8,
              const Incident& incident, std::string& reason) {
  if (incident.weights_are_bad && settings.bad_steps != BadSteps::kRollBack) {
    reason = "Skipping steps cannot repair a non-finite weight";
    return false;
  }
  if (settings.bad_steps != BadSteps::kStop) {
    if (progress.bad_step_skips < settings.bad_step_budget) return true;
    reason = octavo::str("bad_step_budget (", settings.bad_step_budget, " steps) is used up");
    return false;
  }
  const bool guarded = in_fp8 && settings.fp8_guard != config::Fp8Guard::kOff;
  if (!guarded || !std::isfinite(incident.loss)) return false;
  if (progress.skipped_in_a_row < kMostSkippedInARow) return true;
  reason = octavo::str(kMostSkippedInARow, " steps in a row were dropped");
  return false;
}

std::string advice(BadSteps policy, const Incident& incident) {
  if (incident.cause == Cause::kHardware)
    return octavo::str("Check the machine",
                       incident.ranks.empty()       ? "s"
                       : incident.ranks.size() == 1 ? " of that rank"
                                                    : "s of those ranks",
                       ", and resume from the last checkpoint");
  if (incident.cause == Cause::kFp8)
    return "Leave that layer out with fp8_skip, or use fp8_guard fallback, and resume from the "
           "last checkpoint";
  return octavo::str(
      "Lower learning_rate, or resume from an earlier checkpoint with another seed; ",
      policy == BadSteps::kStop ? "bad_steps: skip continues without such steps"
                                : "a higher bad_step_budget continues for longer");
}

// The checkpoint to go back to: one that this start of the run has made, or has come from. The
// latest of the folder may be of a branch that was given up, or of another run.
std::string last_own_checkpoint(const Run& run) {
  const auto saves = run.saver != nullptr ? run.saver->counts() : checkpoint::Saver::Counts();
  if (saves.saves == saves.failed && !run.resumed.from.empty()) return run.resumed.from;
  if (run.saver != nullptr) return "latest";
  fail(ExitCode::kUsage, "train", "nothing was saved in this run");
}

}  // namespace

std::optional<Incident> judge_step(BadSteps policy, const monitor::SpikeDetector& losses,
                                   int64_t step, const StepStats& stats, double loss) {
  Incident incident;
  incident.step = step;
  incident.loss = loss;
  if (!stats.is_finite()) {
    incident.kind = IncidentKind::kNotFinite;
    incident.what = not_finite(step, stats, loss);
    return incident;
  }
  if (policy == BadSteps::kStop) return std::nullopt;
  const auto verdict = losses.judge(loss);
  if (!verdict.spike) return std::nullopt;
  incident.kind = IncidentKind::kSpike;
  incident.what =
      octavo::str("the loss of step ", incident.step, " is ", loss, ", ", verdict.sigmas,
                  " sigmas above ", verdict.median, ", the median of the last steps");
  return incident;
}

void skip_step(Run& run, Incident incident, const std::vector<data::Batch>& batches,
               double tokens) {
  auto& progress = run.progress;
  incident.first_sample = progress.position.samples;
  incident.end_sample = batches.back().after.samples;
  const bool streak = progress.skipped_in_a_row > 0;
  if (incident.kind == IncidentKind::kNotFinite && !streak &&
      std::ranges::count_if(run.guards.incidents, was_looked_into) < kMaxReplays)
    replay_step(run.settings, run.world, run.trained, batches, tokens, incident);
  else
    run.trained.optimizer->drop_gradients();
  std::string reason;
  if (!may_skip(run.settings, progress, run.trained.fp8 != nullptr, incident, reason)) {
    incident.action = "run ended";
    run.guards.incidents.push_back(incident);
    fail(ExitCode::kGuard, "train", incident.text(), "; no update was applied. ",
         reason.empty() ? "" : octavo::str(reason, ". "), advice(run.settings.bad_steps, incident));
  }
  incident.action = "skipped";
  log_warn(octavo::str(incident.text(), "; no update was applied, training continues (",
                       run.settings.bad_steps == BadSteps::kStop ? "fp8_guard" : "bad_steps", ")"));
  run.guards.incidents.push_back(std::move(incident));
  ++progress.skipped_steps;
  ++progress.skipped_in_a_row;
  if (run.settings.bad_steps != BadSteps::kStop) ++progress.bad_step_skips;
}

bool is_suspect(BadSteps policy, const Progress& progress) {
  return policy == BadSteps::kRollBack && progress.skipped_in_a_row > 0;
}

bool rollback_is_due(BadSteps policy, const Progress& progress) {
  return policy == BadSteps::kRollBack && progress.skipped_in_a_row >= kSkippedBeforeRollback;
}

void roll_back(Run& run) {
  if (!finish_saves(run)) log_warn("the last checkpoint could not be saved: an older one is used");
  const int64_t skipped = run.progress.skipped_in_a_row;
  Restored restored;
  try {
    restored = restore(run, last_own_checkpoint(run));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kUsage && error.code() != ExitCode::kDamaged) throw;
    fail(ExitCode::kGuard, "train", skipped,
         " steps in a row were skipped, and there is no checkpoint to go back to (", error.what(),
         "). Set checkpoint_freq, or start anew with a lower learning_rate");
  }
  run.progress.skipped_in_a_row = 0;
  ++run.progress.rollbacks;
  Incident incident;
  incident.kind = IncidentKind::kRollback;
  incident.step = run.progress.step;
  incident.what = octavo::str(skipped, " steps in a row were skipped");
  incident.first_sample = restored.samples;
  incident.end_sample = run.progress.position.samples;
  incident.action = octavo::str("rolled back to ", restored.path, ", of step ", restored.step);
  log_warn(octavo::str(incident.what, ": ", incident.action, "; samples ", incident.first_sample,
                       " to ", incident.end_sample,
                       " of the data's order are left out (bad_steps)"));
  run.guards.incidents.push_back(std::move(incident));
}

}  // namespace octavo::train

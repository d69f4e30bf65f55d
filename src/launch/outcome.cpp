#include "launch/outcome.h"

#include <cstring>

#include "base/error.h"

namespace octavo::launch {
namespace {

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kEnvironment = static_cast<int>(ExitCode::kEnvironment);

Cause cause_of(const RankEnd& end) {
  if (end.was_stopped) return Cause::kSilent;
  if (end.killed || !has_failed(end)) return Cause::kNone;
  if (end.signal != 0 || end.code != kEnvironment) return Cause::kItself;
  return Cause::kReported;
}

std::string sentence(const RankEnd& end) {
  std::string text = str("rank ", end.rank, " ");
  if (end.was_stopped)
    text += "stood still (SIGSTOP) and was ended";
  else if (end.signal != 0)
    text += "was " + death_text(end);
  else
    text += "ended with " + death_text(end);
  if (!end.last_line.empty()) text += "; its last line: " + end.last_line;
  return text;
}

}  // namespace

bool has_failed(const RankEnd& end) {
  return end.signal != 0 || (end.code != 0 && end.code != kStopped);
}

std::string death_text(const RankEnd& end) {
  if (end.signal == 0) return str("exit code ", end.code);
  return str("killed by signal ", end.signal, " (", strsignal(end.signal), ")");
}

Outcome outcome_of(std::span<const RankEnd> ends, int stop_signal) {
  Outcome outcome;
  const RankEnd* culprit = nullptr;
  bool any_stopped = false, stopped_early = false;
  for (const RankEnd& end : ends) {
    any_stopped |= end.signal == 0 && end.code == kStopped;
    stopped_early |= stop_signal != 0 && end.signal == stop_signal;
    const Cause cause = cause_of(end);
    if (cause == Cause::kNone) continue;
    if (culprit != nullptr &&
        (cause < outcome.cause || (cause == outcome.cause && end.order > culprit->order)))
      continue;
    culprit = &end;
    outcome.cause = cause;
  }
  // The signal that asks for a stop ends a rank that has not yet begun to listen to it.
  if (culprit == nullptr || (stopped_early && culprit->signal == stop_signal)) {
    outcome.cause = Cause::kNone;
    outcome.code = any_stopped || stopped_early ? kStopped : 0;
    if (culprit != nullptr) outcome.what = sentence(*culprit) + " before it could save";
    return outcome;
  }
  outcome.rank = culprit->rank;
  const bool by_signal = culprit->signal != 0;
  outcome.code = by_signal ? kEnvironment : culprit->code;
  outcome.curable = outcome.code == kEnvironment;
  outcome.what = sentence(*culprit);
  return outcome;
}

const Outcome& worst(std::span<const Outcome> outcomes) {
  OCTAVO_ASSERT(!outcomes.empty());
  const Outcome* result = &outcomes.front();
  for (const Outcome& each : outcomes) {
    const bool more = each.cause > result->cause;
    const bool stopped = each.cause == result->cause && result->code == 0 && each.code != 0;
    if (more || stopped) result = &each;
  }
  return *result;
}

}  // namespace octavo::launch

#include "launch/outcome.h"

#include <csignal>
#include <cstring>

#include "base/error.h"

namespace octavo::launch {
namespace {

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kEnvironment = static_cast<int>(ExitCode::kEnvironment);

Cause cause_of(const RankEnd& end) {
  switch (kind_of(end)) {
    case EndKind::kDone:
    case EndKind::kStopped:
    case EndKind::kEndedByUs:
      return Cause::kNone;
    case EndKind::kPeerLost:
      return Cause::kReported;
    case EndKind::kEnvironment:
      return Cause::kUnexplained;
    case EndKind::kStoodStill:
    case EndKind::kUnkillable:
      return Cause::kSilent;
    default:
      return Cause::kItself;
  }
}

std::string sentence(const RankEnd& end) {
  std::string text = str("rank ", end.rank, " ");
  if (end.unkillable)
    text += "does not end after SIGKILL: it waits in the kernel, for a file system or a driver";
  else if (end.killed && end.silent_seconds > 0)
    text += str("stood still (no sign of life for ", static_cast<int64_t>(end.silent_seconds),
                " s) and was ended");
  else if (end.was_stopped)
    text += "stood still (SIGSTOP) and was ended";
  else if (end.signal != 0)
    text += "was " + death_text(end);
  else
    text += "ended with " + death_text(end);
  if (end.failure != Failure::kUnknown && end.failure != Failure::kPeerLost && end.signal == 0)
    text += str(" (", row_of(kind_of(end)).name, ")");
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
  bool any_stopped = false, stopped_early = false, any_ended_by_us = false;
  const RankEnd* unkillable = nullptr;
  for (const RankEnd& end : ends) {
    any_stopped |= end.signal == 0 && end.code == kStopped;
    stopped_early |= stop_signal != 0 && end.signal == stop_signal;
    any_ended_by_us |= end.killed;
    if (end.unkillable) unkillable = &end;
    const Cause cause = cause_of(end);
    if (cause == Cause::kNone) continue;
    if (culprit != nullptr &&
        (cause < outcome.cause || (cause == outcome.cause && end.order > culprit->order)))
      continue;
    culprit = &end;
    outcome.cause = cause;
  }
  outcome.stopped = any_stopped || stopped_early;
  // The signal that asks for a stop ends a rank that has not yet begun to listen to it.
  if (culprit == nullptr || (stopped_early && culprit->signal == stop_signal)) {
    outcome.cause = Cause::kNone;
    outcome.code = outcome.stopped ? kStopped : 0;
    outcome.kind = outcome.stopped ? EndKind::kStopped : EndKind::kDone;
    if (culprit != nullptr) outcome.what = sentence(*culprit) + " before it could save";
    if (outcome.stopped || !any_ended_by_us) return outcome;
    outcome.code = 128 + SIGINT;  // as of a process that is asked twice
    outcome.kind = EndKind::kStoppedTwice;
    outcome.what =
        "the ranks were ended at once, as asked; what they did since the last checkpoint is lost";
    return outcome;
  }
  const bool accuses = culprit->failure == Failure::kHang && culprit->hanging >= 0;
  outcome.rank = accuses ? culprit->hanging : culprit->rank;
  const bool by_itself = culprit->signal == 0 && !culprit->unkillable;
  outcome.code = by_itself ? culprit->code : kEnvironment;
  outcome.kind = kind_of(*culprit);
  outcome.curable = row_of(outcome.kind).curable;
  outcome.what = sentence(*culprit);
  if (unkillable != nullptr && unkillable != culprit) {
    outcome.curable = false;
    outcome.what += "; " + sentence(*unkillable);
  }
  return outcome;
}

Outcome together(std::span<const Outcome> outcomes) {
  Outcome result = worst(outcomes);
  for (const Outcome& each : outcomes) {
    result.curable = result.curable && (each.cause == Cause::kNone || each.curable);
    result.stopped = result.stopped || each.stopped;
  }
  // A rank that stopped as it was asked to has either saved with all others or never trained.
  if (!result.stopped || result.cause > Cause::kUnexplained) return result;
  result.code = kStopped;
  result.cause = Cause::kNone;
  result.kind = EndKind::kStopped;
  result.curable = false;
  return result;
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

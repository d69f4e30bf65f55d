#include "train/guards/hang_judge.h"

#include <algorithm>

namespace octavo::train {
namespace {

using heartbeat::Wait;

// Of the time-out. What is left is for the stack and the messages; and who waits for other ranks
// speaks after the one that hangs, though it may have been there before it.
constexpr double kHangs = 0.75, kWaits = 0.8;
constexpr double kLongestGap = 2;   // seconds between two looks that count
constexpr double kComputing = 0.1;  // of the time, on a processor that others want too

bool shows_progress(const Signs& now, const Signs& before) {
  return now.main != before.main || now.wait != before.wait || now.exempt != before.exempt ||
         now.device != before.device || (now.wait == Wait::kLoader && now.loader != before.loader);
}

}  // namespace

// A matrix product that takes a minute is no hang, where it is this thread that computes it.
bool HangJudge::may_take_long(const Signs& signs) const {
  return signs.exempt || (options_.on_cpu && signs.wait == Wait::kNothing &&
                          signs.cpu_seconds - cpu_before_ >= kComputing * quiet_);
}

Verdict HangJudge::look(double now, const Signs& signs) {
  const double passed = std::clamp(now - last_look_, 0.0, kLongestGap);
  const bool progress = !began_ || shows_progress(signs, last_);
  began_ = true;
  last_look_ = now;
  last_ = signs;
  if (progress) {
    quiet_ = 0;
    said_ = false;
    cpu_before_ = signs.cpu_seconds;
    return Verdict::kFine;
  }
  quiet_ += passed;
  if (may_take_long(signs)) {
    if (said_ || quiet_ < options_.timeout) return Verdict::kFine;
    said_ = true;
    return Verdict::kSlow;
  }
  const bool for_ranks = !options_.alone && (signs.wait == Wait::kRanks || signs.device_works);
  if (for_ranks) return quiet_ >= kWaits * options_.timeout ? Verdict::kWaits : Verdict::kFine;
  return quiet_ >= kHangs * options_.timeout ? Verdict::kHangs : Verdict::kFine;
}

}  // namespace octavo::train

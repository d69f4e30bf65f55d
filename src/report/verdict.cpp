#include "report/verdict.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::report {

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "PASS";
    case Verdict::kFail:
      return "FAIL";
    case Verdict::kNotEnoughData:
      return "NOT ENOUGH DATA";
    case Verdict::kNotAsked:
      break;
  }
  return "not judged";
}

Verdict judge_at_most(const Interval& found, double bound) {
  if (found.high <= bound) return Verdict::kPass;
  return found.low > bound ? Verdict::kFail : Verdict::kNotEnoughData;
}

Verdict judge_at_least(const Interval& found, double bound) {
  if (found.low >= bound) return Verdict::kPass;
  return found.high < bound ? Verdict::kFail : Verdict::kNotEnoughData;
}

Verdict overall(std::span<const Verdict> verdicts) {
  const auto any = [&](Verdict wanted) {
    return std::ranges::find(verdicts, wanted) != verdicts.end();
  };
  if (any(Verdict::kFail)) return Verdict::kFail;
  return any(Verdict::kNotEnoughData) || !any(Verdict::kPass) ? Verdict::kNotEnoughData
                                                              : Verdict::kPass;
}

int exit_code(Verdict verdict) {
  if (verdict == Verdict::kPass) return static_cast<int>(ExitCode::kOk);
  const bool failed = verdict == Verdict::kFail;
  return static_cast<int>(failed ? ExitCode::kGuard : ExitCode::kUndecided);
}

}  // namespace octavo::report

#pragma once
// An interval and a bound give a verdict: only an interval that lies on one side of its bound does.

#include <optional>
#include <span>
#include <string>

#include "compare/statistics.h"

namespace octavo::compare {

enum class Verdict { kPass, kFail, kNotEnoughData, kNotAsked };

std::string_view name_of(Verdict verdict);  // "PASS", "FAIL", "NOT ENOUGH DATA", "not judged"

Verdict judge_at_most(const Interval& found, double bound);
Verdict judge_at_least(const Interval& found, double bound);

// FAIL when one fails; NOT ENOUGH DATA when one is open, or when nothing was judged.
Verdict overall(std::span<const Verdict> verdicts);

// 0 PASS, 4 FAIL, 6 NOT ENOUGH DATA: no other exit code of the program says the last.
int exit_code(Verdict verdict);

}  // namespace octavo::compare

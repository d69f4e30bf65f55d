#pragma once
// How many pairs of runs a verdict on a loss takes. Two runs that differ by their seed alone end up
// apart, in small models by 1 to 2%: only several pairs show by how much, and what a gap is worth
// beside that.

#include <cstdint>
#include <span>

#include "compare/statistics.h"

namespace octavo::compare {

// With fewer there is no verdict: the spread over seeds is not known.
inline constexpr size_t kLeastSeeds = 3;
inline constexpr int64_t kMostSeeds = 1000;  // of key `seeds`

// Pairs, in all, after which a 95% interval lies on one side of `margin` with a power of 95%, for a
// true gap of 0 and for one of twice the margin, when gaps vary as these do (percent, one for each
// seed). Where there are as many already and the interval still lies across the margin, the gap is
// near it: then by the distance that was found. 0: more than kMostSeeds.
int64_t seeds_for_verdict(std::span<const double> gaps, double margin);

}  // namespace octavo::compare

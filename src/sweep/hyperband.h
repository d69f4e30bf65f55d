#pragma once
// Early termination as W&B does it: Hyperband's brackets (Li, Jamieson, DeSalvo, Rostamizadeh and
// Talwalkar, JMLR 2018), judged one trial at a time when it comes to a bracket's iteration.

#include <span>

#include "sweep/definition.h"

namespace octavo::sweep {

// The values of the metric so far, and those at `band` of every trial that reached it, this one
// among them. It continues when it is among the best 1/eta of these.
bool survives_band(const Definition& definition, int64_t band, std::span<const double> history,
                   std::vector<double> at_band);

}  // namespace octavo::sweep

#pragma once
// Early termination by Hyperband's brackets (Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar,
// JMLR 2018), at the iterations where W&B has them, judged one trial at a time when it comes to
// one. W&B keeps one trial more where eta divides their number, and compares a trial's best value
// with what the others had at the bracket; here the same is taken of all of them.

#include <span>

#include "sweep/definition.h"

namespace octavo::sweep {

// What a trial is judged by at `band`: the best of its values up to there; strict: the value there.
double value_at_band(const Definition& definition, int64_t band, std::span<const double> history);
// Whether `own` is among the best 1/eta, rounded up, of what all trials had at the band, this one
// among them. Equal values are equally good.
bool survives_band(const Definition& definition, double own, std::vector<double> at_band);

}  // namespace octavo::sweep

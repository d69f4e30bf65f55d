#include "sweep/hyperband.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::sweep {

double value_at_band(const Definition& sweep, int64_t band, std::span<const double> history) {
  OCTAVO_ASSERT(band >= 1 && static_cast<size_t>(band) <= history.size());
  const auto until = history.first(static_cast<size_t>(band));
  if (sweep.hyperband.strict) return until.back();
  return *std::ranges::min_element(until,
                                   [&](double a, double b) { return is_better(sweep, a, b); });
}

bool survives_band(const Definition& sweep, double own, std::vector<double> at_band) {
  if (at_band.empty()) return true;
  const auto better = [&](double a, double b) { return is_better(sweep, a, b); };
  std::ranges::sort(at_band, better);
  // A share that is whole but for the last bit of a division is that whole number.
  const double share = static_cast<double>(at_band.size()) / sweep.hyperband.eta;
  const auto kept = static_cast<size_t>(std::max(1.0, std::ceil(share - 1e-9)));
  return !better(at_band[std::min(kept, at_band.size()) - 1], own);
}

}  // namespace octavo::sweep

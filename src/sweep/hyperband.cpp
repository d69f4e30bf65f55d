#include "sweep/hyperband.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::sweep {

bool survives_band(const Definition& sweep, int64_t band, std::span<const double> history,
                   std::vector<double> at_band) {
  OCTAVO_ASSERT(band >= 1 && static_cast<size_t>(band) <= history.size());
  if (at_band.empty()) return true;
  const auto better = [&](double a, double b) { return is_better(sweep, a, b); };
  std::ranges::sort(at_band, better);
  const auto place = static_cast<size_t>(static_cast<double>(at_band.size()) / sweep.hyperband.eta);
  const double threshold = at_band[std::min(place, at_band.size() - 1)];
  const double own = sweep.hyperband.strict ? history[static_cast<size_t>(band) - 1]
                                            : *std::ranges::min_element(history, better);
  return !better(threshold, own);
}

}  // namespace octavo::sweep

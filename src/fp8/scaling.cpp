#include "fp8/scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace octavo::fp8 {
namespace {

// Row 0 goes to the end and becomes 0; the others move up by one and the oldest falls out. Returns
// the largest of all.
float roll(const History& h, size_t slot) {
  const size_t slots = h.factors.size(), rows = static_cast<size_t>(h.length);
  const float newest = h.amax[slot];
  float largest = newest;
  for (size_t row = 0; row + 1 < rows; ++row) {
    const float next = h.amax[(row + 1) * slots + slot];
    largest = std::fmax(largest, next);
    if (row > 0) h.amax[row * slots + slot] = next;
  }
  if (rows > 1) h.amax[(rows - 1) * slots + slot] = newest;
  h.amax[slot] = 0;
  return largest;
}

}  // namespace

void update_factors(const History& h, AmaxAlgo algo, int64_t margin, bool recompute) {
  const size_t slots = h.factors.size();
  OCTAVO_ASSERT(h.length >= 1 && h.amax.size() == slots * static_cast<size_t>(h.length) &&
                h.format.size() == slots);
  for (size_t slot = 0; slot < slots; ++slot) {
    const float newest = h.amax[slot];
    if (newest == 0) continue;
    const float largest = roll(h, slot);
    if (!recompute) continue;
    const float amax = algo == AmaxAlgo::kMax ? largest : newest;
    if (amax == 0 || !std::isfinite(amax)) continue;
    const float factor = std::ldexp(max_value(h.format[slot]), -static_cast<int>(margin)) / amax;
    h.factors[slot] = std::isinf(factor) ? std::numeric_limits<float>::max() : factor;
  }
}

}  // namespace octavo::fp8

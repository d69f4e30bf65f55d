#pragma once
// Delayed scaling: the factor of a step comes from the largest magnitudes of the steps before it.

#include <cstdint>
#include <span>

#include "fp8/recipe.h"

namespace octavo::fp8 {

// One step of Transformer Engine's bulk update, in place. `history` is [length, slots], row-major;
// row 0 has the amax of the step just done, the oldest is in row 1, the newest in the last. A slot
// with amax 0 (a layer that did not run, or saw only zeros) keeps its history and factor. The
// factor is MAX / 2^margin / amax of the whole history (max) or of row 0 (most_recent), and is kept
// when that is 0 or not finite. `recompute`: false rolls the history and leaves the factors alone,
// for the steps between two multiples of the interval.
struct History {
  std::span<float> amax;           // [length, slots]
  std::span<float> factors;        // [slots]
  std::span<const Format> format;  // [slots]
  int64_t length = 0;
};
void update_factors(const History& history, AmaxAlgo algo, int64_t margin, bool recompute);

}  // namespace octavo::fp8

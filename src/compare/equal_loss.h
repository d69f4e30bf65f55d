#pragma once
// Time to equal loss: a loss that is a little higher can be trained away. How much longer B must
// train until it has A's loss, and what is left of its speed after paying for that.

#include <optional>
#include <string>
#include <vector>

#include "compare/pair_results.h"

namespace octavo::compare {

struct EqualLoss {
  Interval steps;               // B's over A's, as a factor; below 1: B is there first
  std::optional<Interval> net;  // B's speed-up divided by it
  double fall = 0;              // of the loss while the number of steps doubles
};

// By how fast the losses fall, with the logarithm of the step, over the second half of the common
// steps; both runs of all pairs together. `gap`: of the training loss, percent. `speed`: B's
// speed-up. None: the losses do not fall, or not so that it shows; `why` says so.
std::optional<EqualLoss> equal_loss(const std::vector<Pair>& pairs, const Interval& gap,
                                    const std::optional<Interval>& speed, std::string& why);

}  // namespace octavo::compare

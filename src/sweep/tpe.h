#pragma once
// The method bayes: a tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kégl,
// "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011).
//
// The trials so far are cut into the good (the best few) and the rest. For each parameter two
// densities over (0, 1) are made of Gaussians around the draws of either part and the uniform
// prior: l of the good and g of the rest. Candidates are drawn from l, and the one with the largest
// l/g is taken, which is the one with the largest expected improvement. It needs no model of how
// parameters act together, takes lists and ranges alike, and has nothing to fit that could fail.
//
// Only trials that finished with a finite result are ranked. Those that still run belong to the
// rest, so that agents that ask at the same time are sent apart, and so do those that were stopped
// early, failed or diverged.

#include <cstdint>
#include <optional>
#include <vector>

#include "sweep/parameter.h"

namespace octavo::sweep {

// Numbers in (0, 1) that depend on seed, trial and their position alone.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t trial) : seed_(seed), trial_(trial) {}
  double next();
  double next_normal();

 private:
  uint64_t seed_, trial_, position_ = 0;
};

struct SeenTrial {
  std::vector<double> draws;    // one for each parameter
  std::optional<double> value;  // smaller is better; none: it has not finished with one
};

inline constexpr size_t kFirstRandomTrials = 8;  // before there is anything to learn from

std::vector<double> tpe_draws(const std::vector<Parameter>& parameters,
                              const std::vector<SeenTrial>& seen, Draws& random);

}  // namespace octavo::sweep

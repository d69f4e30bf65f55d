#pragma once
// The ranks of a run. Training code asks the world for everything that concerns more than one rank;
// a world of one answers at once.

#include <ATen/core/Tensor.h>

#include "nn/param.h"

namespace octavo::dist {

class World {
 public:
  // Reads the launcher's variables (RANK, WORLD_SIZE). More than one rank is refused: this version
  // trains on one.
  static World from_environment();

  int rank() const { return 0; }
  int size() const { return 1; }
  bool is_first() const { return rank() == 0; }
  // After the last micro-batch of a step: every rank's gradients become their sum over ranks.
  void sum_gradients(const nn::ParamList&) const {}
  // The sum over ranks, in place.
  void sum(at::Tensor&) const {}
  // The largest over ranks, in place.
  void max(at::Tensor&) const {}
};

}  // namespace octavo::dist

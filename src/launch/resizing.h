#pragma once
// What node 0 of a run of nnodes MIN:MAX decides: which nodes the next generation has, and when the
// ranks that run are to stop and save because there could be more of them.

#include <chrono>
#include <vector>

#include "launch/coordinator.h"
#include "launch/membership.h"
#include "launch/node_faults.h"

namespace octavo::launch {

class Resizing {
 public:
  // `window`: in which the faults of a node count.
  Resizing(const Elastic& elastic, std::chrono::milliseconds wait,
           std::chrono::duration<double> window)
      : elastic_(elastic), wait_(wait), faults_(window) {}

  // Waits for nodes, and says which it takes; none: too few came.
  std::vector<int> next(LaunchCoordinator& coordinator);
  // While ranks run: true, once in a generation, when they are to stop so that more can be started.
  // Not before they have made a step, so that every generation gets on.
  bool wants_stop(LaunchCoordinator& coordinator, int generation, bool has_made_a_step);
  bool asked() const { return asked_; }  // in this generation
  // How this generation ended: a node whose machine fails again and again is left out of the next.
  void take_note(const Outcome& outcome);

 private:
  Elastic elastic_;
  std::chrono::milliseconds wait_;
  NodeFaults faults_;
  std::vector<int> nodes_, candidates_;
  std::chrono::steady_clock::time_point since_{};
  bool asked_ = false;
};

}  // namespace octavo::launch

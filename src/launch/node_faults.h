#pragma once
// Which nodes' machines failed again and again: a run that can do without them leaves them out.

#include <chrono>
#include <deque>
#include <map>
#include <vector>

#include "launch/outcome.h"

namespace octavo::launch {

// A fault of the node's own machine: a GPU, a rank that hangs or is killed. Neither the error of a
// rank that only missed others, nor a GPU's memory, which is too small on all nodes alike, nor the
// loss of the whole node: one that is taken away and given back (a spot instance) is a good one
// while it is there.
bool is_fault_of_node(const Outcome& outcome);

class NodeFaults {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMost = 3;  // within the window, and the node is left out

  explicit NodeFaults(std::chrono::duration<double> window) : window_(window) {}

  // How many it has now.
  size_t add(int node, Clock::time_point now = Clock::now());
  // Never node 0, which has the rendezvous.
  std::vector<int> left_out(Clock::time_point now = Clock::now());

 private:
  std::chrono::duration<double> window_;
  std::map<int, std::deque<Clock::time_point>> faults_;
};

}  // namespace octavo::launch

#include "launch/node_faults.h"

namespace octavo::launch {

bool is_fault_of_node(const Outcome& outcome) {
  return outcome.rank >= 0 && outcome.cause >= Cause::kSilent &&
         outcome.kind != EndKind::kLostNode && outcome.kind != EndKind::kDeviceMemory &&
         row_of(outcome.kind).at_fault == Blame::kMachine;
}

size_t NodeFaults::add(int node, Clock::time_point now) {
  std::deque<Clock::time_point>& of_node = faults_[node];
  of_node.push_back(now);
  while (now - of_node.front() > window_) of_node.pop_front();
  return of_node.size();
}

std::vector<int> NodeFaults::left_out(Clock::time_point now) {
  std::vector<int> nodes;
  for (auto& [node, times] : faults_) {
    while (!times.empty() && now - times.front() > window_) times.pop_front();
    if (node != 0 && times.size() >= kMost) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace octavo::launch

#include "launch/resizing.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kNodesReturn{600'000};  // when fewer than MIN are there
constexpr milliseconds kSettle{2'000};         // nodes that come together are taken together

}  // namespace

std::vector<int> Resizing::next(LaunchCoordinator& coordinator) {
  const Members members = coordinator.gather(
      {.elastic = elastic_, .before = nodes_, .left_out = faults_.left_out()}, wait_, kNodesReturn);
  asked_ = false;
  candidates_.clear();
  if (members.nodes.empty()) {
    log_error(str("wanted at least ", elastic_.least, " nodes, found ", node_names(members.idle),
                  " after ", kNodesReturn.count() / 1000,
                  " s; start octavo launch on the others, or give a smaller MIN"));
    return {};
  }
  const size_t before = nodes_.size() * static_cast<size_t>(elastic_.local_ranks);
  const size_t now = members.nodes.size() * static_cast<size_t>(elastic_.local_ranks);
  const std::vector<int> lost = without(nodes_, members.nodes);
  const std::string text = described(elastic_, members);
  if (nodes_.empty() || (now == before && lost.empty()))
    log_info(text);
  else if (now == before)
    log_warn(str("the run goes on with ", now, " ranks, others in the place of ", node_names(lost),
                 "; ", text));
  else
    log_warn(str("the run ", now < before ? "shrinks" : "grows", " from ", before, " to ", now,
                 " ranks; ", text));
  nodes_ = members.nodes;
  return nodes_;
}

void Resizing::take_note(const Outcome& outcome) {
  const size_t place = static_cast<size_t>(std::max(0, outcome.rank) / elastic_.local_ranks);
  if (!is_fault_of_node(outcome) || place >= nodes_.size()) return;
  const int node = nodes_[place];
  const size_t faults = faults_.add(node);
  if (faults < NodeFaults::kMost) return;
  log_warn(str("node ", node, " has failed ", faults, " times within restart_window: ",
               node == 0 ? "it has the rendezvous and cannot be left out; stop the run and give "
                           "--node_rank 0 to another"
                         : "it is left out, unless there are too few without it; look at its "
                           "machine"));
}

bool Resizing::wants_stop(LaunchCoordinator& coordinator, int generation, bool has_made_a_step) {
  std::vector<int> there;
  try {
    there = coordinator.look_at_nodes(generation);
  } catch (const Error& error) {
    log_warn(str("this node's own store does not answer: ", error.what()));
    return false;
  }
  if (asked_) return false;
  there = without(there, faults_.left_out());
  const Members larger = chosen_members(elastic_, there, nodes_);
  if (!has_made_a_step || larger.nodes.size() <= nodes_.size()) {
    candidates_.clear();
    return false;
  }
  const Clock::time_point now = Clock::now();
  if (larger.nodes != candidates_) {
    candidates_ = larger.nodes;
    since_ = now;
  }
  const bool is_full = static_cast<int>(larger.nodes.size()) == elastic_.most;
  if (!is_full && now - since_ < kSettle) return false;
  const std::vector<int> come = without(larger.nodes, nodes_);
  log_info(str(node_names(come), come.size() == 1 ? " has" : " have",
               " come: the ranks finish their step, save, and are started again as ",
               larger.nodes.size() * static_cast<size_t>(elastic_.local_ranks)));
  asked_ = true;
  return true;
}

}  // namespace octavo::launch

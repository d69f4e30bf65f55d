// What node 0 does beside starting and ending generations: who is there.
#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/coordinator.h"
#include "launch/messages.h"
#include "rendezvous/keys.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kBetweenLooks{100}, kReadEnd{5'000}, kSayMissing{5'000};
constexpr size_t kMostNamed = 8;  // nodes in a line

}  // namespace

bool LaunchCoordinator::has_ranks(const StartPlan& plan) const {
  return plan.nodes.empty() || std::ranges::find(plan.nodes, node_) != plan.nodes.end();
}

bool LaunchCoordinator::is_missed(int node) {
  if (watch_ == nullptr || node <= 0) return false;
  watch_->look(*client_);
  return watch_->silent(node) >= kNodeMissed;
}

// A client connects again by itself, and a node 0 that came back has the address of the one before.
// Its store knows nothing of the generations of that one, and counts anew.
void LaunchCoordinator::check_store() {
  if (node_ == 0 || client_->try_get(kStoreKey) == store_) return;
  throw rendezvous::Unreachable(ExitCode::kEnvironment, "launch",
                                "node 0 was started again, with another store");
}

Members LaunchCoordinator::gather(const Gathering& given, milliseconds wait,
                                  milliseconds patience) {
  const Elastic& elastic = given.elastic;
  const std::vector<int> before = without(given.before, given.left_out);
  const Clock::time_point begin = Clock::now();
  const size_t wanted = before.empty() ? static_cast<size_t>(elastic.most) : before.size();
  for (bool said = false;; std::this_thread::sleep_for(kBetweenLooks)) {
    watch_->look(*client_);
    Members members = chosen_members(elastic, without(watch_->there(), given.left_out), before);
    const auto waited = Clock::now() - begin;
    if (members.nodes.size() >= wanted) return members;
    if (waited >= wait && members.nodes.empty() && !given.left_out.empty()) {
      members = chosen_members(elastic, watch_->there(), given.before);
      if (!members.nodes.empty())
        log_warn(str("too few nodes without ", node_names(given.left_out), ": it is taken again"));
    }
    if (waited >= wait && !members.nodes.empty()) return members;
    if (waited >= std::max(wait, patience)) return members;
    if (options_.interrupted())
      fail(ExitCode::kStopped, "launch", "asked to stop while nodes were waited for");
    if (said || waited < kSayMissing) continue;
    said = true;
    log_info(str("there: ", node_names(watch_->there()), "; wanted ", wanted,
                 " nodes, waited for up to ", wait.count() / 1000.0, " s, or until ", elastic.least,
                 " are there"));
  }
}

std::vector<int> LaunchCoordinator::look_at_nodes(int generation) {
  watch_->look(*client_);
  for (const int node : members_) {
    if (alarmed_ == generation || watch_->silent(node) < kNodeLost) continue;
    alarmed_ = generation;
    const std::string why = str("node ", node, ": no sign of life of its launcher for ",
                                kNodeLost.count() / 1000, " s");
    log_error(why);
    client_->compare_set(rendezvous::alarm_key(generation), "", why);
  }
  return watch_->there();
}

bool LaunchCoordinator::say_missing_nodes(int generation) {
  const rendezvous::Missing missing = client_->missing(node_prefix(generation), nodes_);
  if (missing.count == 0) return false;
  std::vector<std::string> named;
  for (const int64_t node : missing.first)
    if (named.size() < kMostNamed) named.push_back(std::to_string(node));
  const auto more = missing.count - static_cast<int64_t>(named.size());
  const std::string text = str(missing.count == 1 ? "node " : "nodes ", join(named, ", "),
                               more > 0 ? str(" and ", more, " more") : "", " of ", nodes_);
  std::string now = str(generation, " ", text);
  if (now != missing_)
    log_info(str("waiting for ", text,
                 ": octavo launch has not started there, or does not reach this node"));
  missing_ = std::move(now);
  return true;
}

void LaunchCoordinator::dismiss(StartPlan plan, int code, bool all) noexcept {
  try {
    plan.stop = true;
    plan.code = code;
    client_->set(kPlanKey, written(plan));
    watch_->look(*client_);
    std::vector<std::string> read;
    for (const int node : watch_->there())
      if (node != 0 && (all || std::ranges::find(members_, node) == members_.end()))
        read.push_back(left_key(node));
    if (!read.empty()) client_->wait(read, kReadEnd);  // the store ends with this process
  } catch (const std::exception& error) {
    log_warn(str("not all nodes that waited beside the run have read its end: ", error.what()));
  }
}

}  // namespace octavo::launch

#include "launch/presence.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/auth.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeat{500}, kLongestAway{2'000}, kNever{1'000'000'000};

}  // namespace

std::string here_key(int node) {
  return str("launch/here/", node);
}

PresenceBeat::PresenceBeat(rendezvous::Client& client, int node)
    : client_(client),
      key_(here_key(node)),
      self_(rendezvous::new_secret()),
      thread_([this] { run(); }) {}

PresenceBeat::~PresenceBeat() {
  end();
}

void PresenceBeat::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PresenceBeat::leave() noexcept {
  end();
  try {
    client_.set(key_, "");
  } catch (const std::exception& error) {
    log_warn(str("node 0 could not be told that this node leaves: ", error.what()));
  }
}

void PresenceBeat::run() {
  for (int64_t beat = 0;; ++beat) {
    try {
      client_.set(key_, str(self_, " ", beat));
    } catch (const std::exception&) {
      // The launcher itself speaks to node 0, too, and says what is wrong with it.
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kBeat, [this] { return ending_; })) return;
  }
}

void PresenceWatch::see(const std::vector<std::string>& values, Clock::time_point now) {
  const auto passed = std::min<Clock::duration>(now - last_look_, kLongestAway);
  last_look_ = now;
  for (size_t at = 0; at < nodes_.size() && at < values.size(); ++at) {
    Node& node = nodes_[at];
    if (values[at] == node.value) {
      node.silent += passed;
      continue;
    }
    node.value = values[at];
    node.came = !values[at].empty();
    node.silent = {};
  }
}

void PresenceWatch::look(rendezvous::Client& client, Clock::time_point now) {
  if (now - last_read_ < kBeat) return;
  last_read_ = now;
  std::vector<std::string> keys;
  for (size_t node = 0; node < nodes_.size(); ++node)
    keys.push_back(here_key(static_cast<int>(node)));
  see(client.multi_try_get(keys), now);
}

milliseconds PresenceWatch::silent(int node) const {
  if (node == 0) return milliseconds(0);
  const Node& found = nodes_.at(static_cast<size_t>(node));
  return found.came ? std::chrono::duration_cast<milliseconds>(found.silent) : kNever;
}

std::vector<int> PresenceWatch::there() const {
  std::vector<int> nodes;
  for (int node = 0; node < static_cast<int>(nodes_.size()); ++node)
    if (silent(node) < kNodeMissed) nodes.push_back(node);
  return nodes;
}

}  // namespace octavo::launch

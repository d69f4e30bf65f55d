#pragma once
// Which launchers of a run of nnodes MIN:MAX are there: each renews its key in node 0's store, and
// node 0 looks. A key that does not change any more is a machine or a launcher that is gone,
// whatever its connections say.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/client.h"

namespace octavo::launch {

std::string here_key(int node);

// Renews this node's key until it ends. Node 0 being unreachable is for others to say.
class PresenceBeat {
 public:
  PresenceBeat(rendezvous::Client& client, int node);
  ~PresenceBeat();
  PresenceBeat(const PresenceBeat&) = delete;
  PresenceBeat& operator=(const PresenceBeat&) = delete;
  // This launcher leaves: nobody is to wait until it is missed.
  void leave() noexcept;

 private:
  void run();
  void end() noexcept;

  rendezvous::Client& client_;
  const std::string key_, self_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

// Node 0's side. Only time counts in which it could look: a node 0 that stood still misses nobody.
class PresenceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit PresenceWatch(int nodes) : nodes_(static_cast<size_t>(nodes)) {}

  // What the nodes' keys hold now, by node; "" for one that has none. Node 0 is always there.
  void see(const std::vector<std::string>& values, Clock::time_point now);
  // Reads the keys, at most every half second.
  void look(rendezvous::Client& client, Clock::time_point now = Clock::now());

  // Since its key last changed; a time longer than any wait when it never came or has left.
  std::chrono::milliseconds silent(int node) const;
  std::vector<int> there() const;  // not missed for long

 private:
  struct Node {
    std::string value;
    Clock::duration silent{0};
    bool came = false;
  };
  std::vector<Node> nodes_;
  Clock::time_point last_look_{}, last_read_{};
};

// How long a launcher may be silent: until it is lost, or, when its ranks are missed already and it
// has not said how they ended, until it is not waited for.
inline constexpr std::chrono::milliseconds kNodeLost{10'000}, kNodeMissed{3'000};

}  // namespace octavo::launch

#pragma once
// The ranks of a run. Training code asks the world for everything that concerns more than one rank;
// a world of one answers at once.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "dist/group.h"
#include "dist/waiting_ranks.h"
#include "launch/rank_info.h"

namespace octavo::dist {

struct WorldOptions {
  std::chrono::milliseconds timeout{600'000};  // of one collective, and of the rendezvous
  std::string interface;                       // network interface; "": as the address chooses
  at::Device device = at::kCPU;
  std::string settings = {};  // what all ranks must have been told alike (arrival.h); "": no matter
  bool hybrid = false;        // weights are spread over the ranks of a node and equal on all nodes
  bool spread = true;   // false: every rank has all weights (ddp), and none brings any to another
  bool tensors = true;  // false: no groups for weights and gradients (bench/scale_sim_tool.cpp)
};

class World {
 public:
  World();  // of one
  World(World&&) noexcept;
  World& operator=(World&&) noexcept;
  ~World();

  // Meets the other ranks that the launcher's variables speak of. All ranks call it.
  static World connect(const launch::RankInfo& rank_info, const WorldOptions& options);

  int rank() const { return rank_info_.rank; }
  int size() const { return rank_info_.ranks; }
  bool is_first() const { return rank() == 0; }
  const launch::RankInfo& rank_info() const { return rank_info_; }

  // Ranks that the rows of a matrix are spread over, and this one's number among them: all, or
  // those of a node.
  int shards() const;
  int shard() const;
  // One to bring weights and one to take gradients away, so that on a GPU neither waits for the
  // other; and the ranks with the same number on other nodes.
  Group& gathering();
  Group& reducing();
  Group& replicas();

  // Over all ranks, in place. In a rank's memory or on its device.
  void sum(at::Tensor& values, const std::string& what);
  void max(at::Tensor& values, const std::string& what);
  // Every rank's numbers, on every rank: int64 [ranks, numbers]. All give as many.
  at::Tensor from_all(std::span<const int64_t> own, const std::string& what);
  // The first rank's text, on every rank.
  std::string from_first(const std::string& text, const std::string& what);
  void barrier(const std::string& what);
  // The first rank does it, then the first rank of every other node, then everybody else: what one
  // of them leaves on disk the next ones find. It may take hours; nobody gives up on it.
  void rank_zero_first(const std::string& what, const std::function<void()>& work);

  // For messages: the step in progress.
  void set_step(int64_t step);
  // No collective follows: whatever becomes of the others, this rank goes on.
  void needs_no_others();
  // Tells the others why this rank leaves, before it does.
  void announce_exit(const std::exception& error) noexcept;
  // This rank has waited long at `place` (dist/waiting_ranks.h). For the watch over hangs, whose
  // thread calls it; the next, too.
  std::optional<AbsentRanks> absent(const WaitingPlace& place);
  // The run hangs, as `text` says: the others leave with it.
  void announce_hang(const std::string& text) noexcept;
  // Calls and bytes of every group since the start.
  Json receipt() const;
  struct Usage {
    Group::Usage gathering, reducing, replicas, all;
    int64_t on_host = 0;  // of `all`: in the ranks' memory, which the host waits for
  };
  Usage usage() const;
  double waited_seconds() const;  // of this rank for the others, since the start

 private:
  struct Connection;
  void over_all(at::Tensor& values, const std::string& what, Op op);

  launch::RankInfo rank_info_;
  std::unique_ptr<Connection> connection_;  // null: of one
};

}  // namespace octavo::dist

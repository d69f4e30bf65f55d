#pragma once
// Silent corruption: a flipped bit in memory, a core that computes wrongly now and then. Ranks that
// hold the same numbers compare them by hashes, 24 bytes a rank when all is well; when it is not,
// by one hash for each tensor, which says what differs and, among three or more, on which rank.
//
// What can be seen, and when:
// - Masters, moments, frozen weights and FP8 scaling state go from step to step: a difference stays
//   until somebody compares, however long ago it came about. All ranks apply the same gradient, so
//   it also stays where it is: the parameter that differs is the one that was hit. (From a moment
//   the next update carries it into the master, and from there into the weights to compute with.)
// - Weights to compute with that are copies of a master are made anew by every update. Seen is what
//   came about after the last one, and memory that does not keep what is written to it. A copy that
//   was wrong only during a step spoils that step's gradient, which ranks sum: all apply the same
//   wrong one, stay alike, and nothing is left to compare. The same is true of activations and
//   gradients before the sum. An error in or after the sum (network, update) is seen.
// - Rows that one rank alone keeps (sharding_mode) have nothing to be compared with, and what went
//   wrong on all ranks alike is no difference.

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "dist/content_hash.h"
#include "dist/world.h"

namespace octavo::dist {

// What other ranks must have alike.
struct Replicated {
  std::string parameter;  // "h.0.attn.c_attn.weight"
  std::string kind;       // "master weights"
  at::Tensor values;      // contiguous
  // This rank's rows of a spread matrix: alike on ranks of other nodes that have the same rows.
  // Otherwise on all ranks.
  bool own_rows = false;
};

// Who stands against the majority; nobody knows when there is none.
struct Disagreement {
  std::vector<int> ranks;     // the odd ones, or all when there is no majority
  bool has_majority = false;  // more than half of the replicas are alike
  std::vector<int> replicas;  // that were compared
};
// Of the hashes of `replicas`, in their order. Nothing when all are alike.
std::optional<Disagreement> find_disagreement(std::span<const int64_t> hashes,
                                              const std::vector<int>& replicas);

struct ReplicaDifference {
  struct Tensor {
    std::string parameter, kind;
    Disagreement odd;
  };
  int64_t step = 0;
  int64_t last_alike = -1;         // step of the last comparison without a difference; -1: none
  std::vector<Tensor> tensors;     // in the order of the list
  std::vector<std::string> hosts;  // of all ranks

  std::vector<int> ranks() const;  // the odd ones, or those that cannot be told apart
  bool has_majority() const;       // of every tensor
  std::string text() const;        // who differs, in what, since when
};

class Replicas {
 public:
  Replicas(World& world, at::Device device);

  // All ranks call it together, with lists of the same names in the same order.
  std::optional<ReplicaDifference> compare(const std::vector<Replicated>& tensors, int64_t step);

  Json receipt() const;

 private:
  std::vector<int64_t> hashes_of(const std::vector<Replicated>& tensors) const;
  std::vector<std::string> hosts_of_all();
  ReplicaDifference describe(const std::vector<Replicated>& tensors,
                             const std::vector<int64_t>& hashes, const std::vector<int>& shards);

  World& world_;
  ContentHash hash_;
  int64_t last_alike_ = -1, checks_ = 0, differences_ = 0, tensors_ = 0;
  double bytes_ = 0, seconds_ = 0, longest_ = 0;  // bytes: of the last comparison
};

}  // namespace octavo::dist

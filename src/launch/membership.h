#pragma once
// Which nodes have ranks in a run of nnodes MIN:MAX. The samples of a step and their order stay the
// same whatever the number of ranks: each then makes more passes or fewer. A number of ranks that
// does not divide the passes of a step is not taken; a node may wait beside the run instead.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/settings.h"
#include "launch/rank_info.h"

namespace octavo::launch {

struct Elastic {
  int least = 1, most = 1;  // nodes that have ranks
  int spares = 0;           // nodes beside them
  int local_ranks = 1;      // of each node
  int64_t samples = 0;      // of a step, on all ranks
  int64_t passes = 1;       // that they make: the number of ranks divides it

  bool on() const { return least < most || spares > 0; }
  int slots() const { return most + spares; }
  bool takes(int nodes) const { return passes % (int64_t{nodes} * local_ranks) == 0; }
};

// `nodes`: MAX and spares together, as node_rank_info has them. An Error of kUsage when the samples
// of a step are not known before the ranks run, or no number of nodes divides them.
Elastic elastic_of(const config::Settings& settings, const config::Settings& train,
                   int local_ranks);

struct Members {
  std::vector<int> nodes;  // that have ranks, in the order of their ranks; none: too few are there
  std::vector<int> idle;   // that are there and have none
};

// The largest number that the nodes which are there allow: node 0, which is always there, then
// those that had ranks before, then the others.
Members chosen_members(const Elastic& elastic, std::span<const int> there,
                       std::span<const int> before);

std::vector<int> without(std::span<const int> all, std::span<const int> left_out);

// Of this node's first rank, in a generation of these nodes; `own` is among them.
RankInfo place_among(const RankInfo& own, std::span<const int> nodes);

// "nodes 0, 1 and 3: 6 ranks, each 8 passes of a step's 48 samples; node 2 waits beside them".
std::string described(const Elastic& elastic, const Members& members);
// "node 3", "nodes 0 and 2".
std::string node_names(std::span<const int> nodes);
// The numbers of nodes from MIN to MAX that divide the passes of a step: "1, 2, 4".
std::string numbers_taken(const Elastic& elastic);

}  // namespace octavo::launch

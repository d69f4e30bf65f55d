#pragma once
// Where this process stands among the ranks of a run, as the launcher's variables say: octavo
// launch, torchrun, srun, mpirun. Variables that are missing or contradict each other are an Error.

#include <optional>
#include <string>

#include "base/process.h"

namespace octavo::launch {

struct RankInfo {
  int rank = 0, ranks = 1, local_rank = 0, local_ranks = 1, node = 0, nodes = 1;
  std::string master_address;  // where the rendezvous is; "" for a run of one rank
  int master_port = 0;
  std::string launcher;           // "", "octavo", "torchrun", "slurm", "mpi", "guide"
  bool store_is_running = false;  // the launcher hosts the rendezvous: no rank starts it
  bool store_is_torch = false;    // torchrun's agent store: a c10d TCPStore
  int generation = 0;             // counts restarts under one store: keys of two must not meet
  bool elastic = false;           // of octavo launch --nnodes MIN:MAX: nodes come and go
};

using octavo::Variables;
Variables environment();  // this process's; empty values are left out

RankInfo rank_info_of(const Variables& variables);
inline RankInfo rank_info_from_environment() {
  return rank_info_of(environment());
}

// Which rank of how many the variables say that this process is, whether or not the rest of them is
// right: for what it says when it cannot start. Nothing for a process that is alone.
struct ToldRank {
  int rank = 0, ranks = 1;
};
std::optional<ToldRank> told_rank(const Variables& variables) noexcept;

// The guides' convention: GPU_NUM processes on each of WORLD_SIZE nodes, of which this is number
// RANK. Only `octavo launch` can start from it: rank is that of the node's first process.
std::optional<RankInfo> guide_rank_info(const Variables& variables);

// The variables that say this place to a rank of octavo launch.
Variables variables_of(const RankInfo& rank_info);

}  // namespace octavo::launch

#pragma once
// How many threads a rank computes with on the CPU, and why.

#include <cstdint>
#include <string>

#include "base/cpu_share.h"
#include "launch/rank_info.h"

namespace octavo::launch {

struct ThreadChoice {
  int count = 1;
  std::string reason;  // "as num_threads says (found 2 physical cores)"
};

// The key when it is not 0, else OMP_NUM_THREADS, else a thread for each physical core that the
// process may use, divided between the ranks of the node.
ThreadChoice choose_threads(int64_t num_threads, const RankInfo& rank_info,
                            const Variables& variables, const CpuShare& share);

}  // namespace octavo::launch

#pragma once
// SLURM's short forms: "node[01-03,7],login" and "2(x3),1".

#include <string>
#include <string_view>
#include <vector>

#include "launch/rank_info.h"

namespace octavo::launch {

// Every host of a node list, in its order.
std::vector<std::string> expand_hosts(std::string_view list);
// Tasks on each node.
std::vector<int> expand_counts(std::string_view list);

// Inside a step that srun started; a batch or salloc shell is none.
bool in_slurm_step(const Variables& variables);
RankInfo slurm_rank_info(const Variables& variables);

}  // namespace octavo::launch

#pragma once
// octavo launch: ranks of one command on this node, with the other nodes', until they are done.

#include <string>
#include <vector>

#include "config/settings.h"
#include "launch/rank_info.h"

namespace octavo::launch {

// Which ranks this node has: the keys, else the guides' variables, else one for each GPU here.
RankInfo node_rank_info(const config::Settings& settings, const Variables& variables);

// CUDA_VISIBLE_DEVICES, or the driver's device files: asking CUDA would cost a second.
int gpus_here(const Variables& variables);

struct Work {
  std::vector<std::string> command;  // the program, `train` and its arguments
  config::Settings train;            // what those arguments say
  std::string config_file;           // among them; "" when there is none
};

// The exit code: 0 done, 75 stopped on request, or that of the rank that failed first.
int run(const config::Settings& settings, const Work& work, const Variables& variables);

}  // namespace octavo::launch

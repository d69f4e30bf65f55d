// Which node this launcher is of, and which ranks that node has.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "launch/run.h"
#include "launch/slurm.h"
#include "launch/variables.h"

namespace octavo::launch {
namespace {

constexpr int kUsualPort = 29500;

int chosen_or(int64_t key, int otherwise) {
  return key >= 0 ? static_cast<int>(key) : otherwise;
}

// One launcher on each node of a job, srun --ntasks-per-node=1 octavo launch: SLURM says which. Any
// node list will do: nodes are counted, whatever their names.
std::optional<RankInfo> slurm_node_info(const config::Settings& settings,
                                        const Variables& variables) {
  if (settings.node_rank >= 0 || !in_slurm_step(variables)) return std::nullopt;
  RankInfo task = slurm_rank_info(variables);
  if (task.nodes == 1 || task.ranks != task.nodes) return std::nullopt;
  return task;
}

}  // namespace

int gpus_here(const Variables& variables) {
  const auto visible = variables.find("CUDA_VISIBLE_DEVICES");
  if (visible != variables.end()) return static_cast<int>(split(visible->second, ',').size());
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return 0;  // `variables` has no empty ones
  int count = 0;
  std::error_code error;
  while (fs::exists(str("/dev/nvidia", count), error)) ++count;
  return count;
}

RankInfo node_rank_info(const config::Settings& settings, const Variables& variables) {
  std::optional<RankInfo> guide = guide_rank_info(variables);
  if (!guide) guide = slurm_node_info(settings, variables);
  RankInfo rank_info = guide.value_or(RankInfo{});
  rank_info.store_is_running = true;
  if (settings.nproc > 0)
    rank_info.local_ranks = static_cast<int>(settings.nproc);
  else if (!guide || rank_info.launcher == "slurm")
    rank_info.local_ranks = std::max(1, gpus_here(variables));
  rank_info.launcher = "octavo";
  if (settings.nnodes > 0) rank_info.nodes = static_cast<int>(settings.nnodes + settings.spares);
  rank_info.node = chosen_or(settings.node_rank, rank_info.node);
  if (rank_info.nodes > kMostRanks / rank_info.local_ranks)
    fail(ExitCode::kUsage, "launch", "wanted at most ", kMostRanks, " ranks, found nnodes ",
         rank_info.nodes, " x nproc ", rank_info.local_ranks);
  if (rank_info.node >= rank_info.nodes)
    fail(ExitCode::kUsage, "launch", "wanted node_rank from 0 to ", rank_info.nodes - 1, ", found ",
         rank_info.node, "; it counts from 0 to nnodes - 1, and spares from there on");
  if (rank_info.nodes > 1 && settings.node_rank < 0 && !guide)
    fail(ExitCode::kUsage, "launch", "nnodes ", rank_info.nodes, ": wanted node_rank, found none; ",
         "give every node its own, from 0 on");
  rank_info.ranks = rank_info.nodes * rank_info.local_ranks;
  rank_info.rank = rank_info.node * rank_info.local_ranks;
  if (!settings.master_address.empty()) rank_info.master_address = settings.master_address;
  if (settings.master_port > 0) rank_info.master_port = static_cast<int>(settings.master_port);
  if (rank_info.nodes > 1 && rank_info.master_address.empty())
    fail(ExitCode::kUsage, "launch", "nnodes ", rank_info.nodes,
         ": wanted master_address, found none; ",
         "give the first node's address or name on every node");
  if (rank_info.nodes == 1 && settings.master_address.empty()) {
    rank_info.master_address =
        "127.0.0.1";  // whatever MASTER_ADDR says: nobody else needs to come in
    if (settings.master_port == 0) rank_info.master_port = 0;
  } else if (rank_info.master_port == 0) {
    rank_info.master_port = kUsualPort;
  }
  return rank_info;
}

}  // namespace octavo::launch

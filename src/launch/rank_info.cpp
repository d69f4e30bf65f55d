#include "launch/rank_info.h"

#include <exception>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "launch/slurm.h"
#include "launch/variables.h"

namespace octavo::launch {
namespace {

constexpr int kLastPort = 65535;

RankInfo octavo_place(const Variables& variables) {
  constexpr std::string_view kSelf = "OCTAVO_RANK";
  const auto wanted = [&](const char* name, int least, int most) {
    return needed_number(variables, name, least, most, kSelf);
  };
  RankInfo rank_info;
  rank_info.launcher = "octavo";
  rank_info.ranks = wanted("OCTAVO_RANKS", 1, kMostRanks);
  rank_info.rank = wanted("OCTAVO_RANK", 0, rank_info.ranks - 1);
  rank_info.local_ranks = wanted("OCTAVO_LOCAL_RANKS", 1, rank_info.ranks);
  rank_info.local_rank = wanted("OCTAVO_LOCAL_RANK", 0, rank_info.local_ranks - 1);
  rank_info.nodes = wanted("OCTAVO_NODES", 1, rank_info.ranks);
  rank_info.node = wanted("OCTAVO_NODE", 0, rank_info.nodes - 1);
  rank_info.generation = wanted("OCTAVO_GENERATION", 0, kMostRanks);
  rank_info.master_port = wanted("OCTAVO_MASTER_PORT", 1, kLastPort);
  rank_info.master_address = address(variables, "OCTAVO_MASTER_ADDRESS").value_or("127.0.0.1");
  rank_info.store_is_running = true;
  rank_info.elastic = is_set(variables, "OCTAVO_ELASTIC");
  return rank_info;
}

// RANK and WORLD_SIZE count processes, as torchrun and PyTorch's users set them.
RankInfo torchrun_place(const Variables& variables) {
  constexpr std::string_view kSelf = "RANK and WORLD_SIZE";
  RankInfo rank_info;
  rank_info.launcher = "torchrun";
  rank_info.ranks = needed_number(variables, "WORLD_SIZE", 1, kMostRanks, "RANK");
  rank_info.rank = needed_number(variables, "RANK", 0, rank_info.ranks - 1, "WORLD_SIZE");
  rank_info.local_ranks = number(variables, "LOCAL_WORLD_SIZE", 1, rank_info.ranks)
                              .value_or(rank_info.ranks == 1 ? 1 : 0);
  if (rank_info.local_ranks == 0)
    needed_number(variables, "LOCAL_WORLD_SIZE", 1, rank_info.ranks, kSelf);
  rank_info.local_rank =
      needed_number(variables, "LOCAL_RANK", 0, rank_info.local_ranks - 1, kSelf);
  if (const auto nodes = number(variables, "GROUP_WORLD_SIZE", 1, rank_info.ranks)) {
    rank_info.nodes = *nodes;
  } else {
    if (rank_info.ranks % rank_info.local_ranks != 0)
      fail(ExitCode::kUsage, "launch",
           "wanted WORLD_SIZE as a multiple of LOCAL_WORLD_SIZE, found ", rank_info.ranks, " and ",
           rank_info.local_ranks, "; give every node as many ranks");
    rank_info.nodes = rank_info.ranks / rank_info.local_ranks;
  }
  rank_info.node = number(variables, "GROUP_RANK", 0, rank_info.nodes - 1)
                       .value_or(rank_info.rank / rank_info.local_ranks);
  rank_info.store_is_torch = variable(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  rank_info.store_is_running = rank_info.store_is_torch;
  rank_info.generation = number(variables, "TORCHELASTIC_RESTART_COUNT", 0, kMostRanks).value_or(0);
  if (rank_info.ranks == 1) return rank_info;
  const std::optional<std::string> master = address(variables, "MASTER_ADDR");
  if (!master)
    fail(ExitCode::kUsage, "launch", "wanted MASTER_ADDR beside ", kSelf, ", found it unset; ",
         "start the ranks with torchrun or octavo launch, or set it to the first node's address");
  rank_info.master_address = *master;
  rank_info.master_port = needed_number(variables, "MASTER_PORT", 1, kLastPort, kSelf);
  return rank_info;
}

// MASTER_PORT, or one that follows from the name of this mpirun, which its ranks share.
int mpi_port(const Variables& variables, std::string_view rank) {
  if (const auto port = number(variables, "MASTER_PORT", 1, kLastPort)) return *port;
  const std::optional<std::string> job = variable(variables, "PMIX_NAMESPACE");
  if (!job)
    fail(ExitCode::kUsage, "launch", "wanted MASTER_PORT beside ", rank, ", found it unset; give ",
         "mpirun -genv MASTER_PORT 29500 (Open MPI: -x MASTER_PORT=29500)");
  return port_of_job(std::hash<std::string>{}(*job));
}

// Open MPI's names, or those of MPICH's and Intel's Hydra.
RankInfo mpi_place(const Variables& variables) {
  const bool open = is_set(variables, "OMPI_COMM_WORLD_RANK");
  const std::string_view rank = open ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
  const std::string_view ranks = open ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE";
  const std::string_view local_rank = open ? "OMPI_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID";
  const std::string_view local_ranks = open ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS";
  RankInfo rank_info;
  rank_info.launcher = "mpi";
  rank_info.ranks = needed_number(variables, ranks, 1, kMostRanks, rank);
  rank_info.rank = needed_number(variables, rank, 0, rank_info.ranks - 1, ranks);
  rank_info.local_ranks = needed_number(variables, local_ranks, 1, rank_info.ranks, rank);
  rank_info.local_rank = needed_number(variables, local_rank, 0, rank_info.local_ranks - 1, rank);
  // mpirun does not say which node this is: it follows from a layout in blocks.
  if (rank_info.ranks % rank_info.local_ranks != 0 ||
      rank_info.rank % rank_info.local_ranks != rank_info.local_rank)
    fail(ExitCode::kUsage, "launch", "mpirun: wanted nodes with as many ranks each, numbered node ",
         "by node, found rank ", rank_info.rank, " of ", rank_info.ranks, " as local rank ",
         rank_info.local_rank, " of ", rank_info.local_ranks, "; use --map-by slot --rank-by slot");
  rank_info.nodes = rank_info.ranks / rank_info.local_ranks;
  rank_info.node = rank_info.rank / rank_info.local_ranks;
  if (rank_info.ranks == 1) return rank_info;
  const std::optional<std::string> master = address(variables, "MASTER_ADDR");
  if (!master && rank_info.nodes > 1)
    fail(ExitCode::kUsage, "launch", "mpirun over ", rank_info.nodes,
         " nodes: wanted MASTER_ADDR, ",
         "found it unset; add -x MASTER_ADDR=<address of the first node>");
  rank_info.master_address = master.value_or("127.0.0.1");
  rank_info.master_port = mpi_port(variables, rank);
  return rank_info;
}

// RANK and friends set by a hand-written script inside a step must say what the step says.
void check_against_slurm(const RankInfo& rank_info, const Variables& variables) {
  if (!in_slurm_step(variables) || is_set(variables, "TORCHELASTIC_RUN_ID")) return;
  const RankInfo step = slurm_rank_info(variables);
  if (step.ranks == 1 || (step.rank == rank_info.rank && step.ranks == rank_info.ranks)) return;
  fail(ExitCode::kUsage, "launch", "wanted RANK and WORLD_SIZE as the SLURM step has them, found ",
       rank_info.rank, " of ", rank_info.ranks, " and SLURM_PROCID ", step.rank, " of ", step.ranks,
       "; unset RANK and WORLD_SIZE, octavo reads SLURM's own variables");
}

[[noreturn]] void refuse_guide(const RankInfo& node) {
  fail(ExitCode::kUsage, "launch", "found GPU_NUM=", node.local_ranks,
       " with WORLD_SIZE=", node.nodes, " and RANK=", node.node,
       " and no LOCAL_RANK: WORLD_SIZE counts nodes, and one ",
       "process would be a whole node; wanted octavo launch -- train …, which starts ",
       node.local_ranks, " ranks from these variables");
}

// PMI's variables are also set by srun --mpi=pmi2: then they are the step's.
bool is_mpi(const Variables& variables) {
  if (is_set(variables, "OMPI_COMM_WORLD_RANK")) return true;
  if (!is_set(variables, "PMI_RANK") || !is_set(variables, "PMI_SIZE")) return false;
  return !in_slurm_step(variables) || is_set(variables, "MPI_LOCALRANKID");
}

}  // namespace

RankInfo rank_info_of(const Variables& variables) {
  // The innermost launcher first: srun may start torchrun, mpirun may use srun.
  if (is_set(variables, "OCTAVO_RANK")) return octavo_place(variables);
  const bool ranked = is_set(variables, "RANK") || is_set(variables, "WORLD_SIZE");
  if (ranked && is_set(variables, "LOCAL_RANK")) {
    RankInfo rank_info = torchrun_place(variables);
    check_against_slurm(rank_info, variables);
    return rank_info;
  }
  if (is_mpi(variables)) return mpi_place(variables);
  if (in_slurm_step(variables)) return slurm_rank_info(variables);
  if (const std::optional<RankInfo> guide = guide_rank_info(variables)) {
    if (ranked && guide->ranks > 1) refuse_guide(*guide);
    if (guide->ranks > 1)
      log_warn(str("GPU_NUM=", guide->local_ranks,
                   " is set, and this is one process; octavo "
                   "launch -- train … starts as many"));
    return {};
  }
  if (ranked) needed_number(variables, "LOCAL_RANK", 0, kMostRanks, "RANK and WORLD_SIZE");
  return {};
}

std::optional<ToldRank> told_rank(const Variables& variables) noexcept {
  struct Names {
    const char *rank, *ranks;
    bool counts;  // whether these variables are of ranks
  };
  try {
    const bool in_step = in_slurm_step(variables);
    const char* tasks =
        is_set(variables, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const Names all[] = {{"OCTAVO_RANK", "OCTAVO_RANKS", true},
                         {"RANK", "WORLD_SIZE", is_set(variables, "LOCAL_RANK")},
                         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", true},
                         {"PMI_RANK", "PMI_SIZE", true},
                         {"SLURM_PROCID", tasks, in_step}};
    for (const Names& names : all) {
      if (!names.counts || !is_set(variables, names.rank)) continue;
      const ToldRank told{number(variables, names.rank, 0, kMostRanks).value_or(0),
                          number(variables, names.ranks, 1, kMostRanks).value_or(1)};
      return told.ranks > 1 ? std::optional(told) : std::nullopt;
    }
  } catch (const std::exception&) {  // no numbers: rank_info_of() says so
  }
  return std::nullopt;
}

std::optional<RankInfo> guide_rank_info(const Variables& variables) {
  constexpr int kMostPerNode = 1024;
  const std::optional<int> gpus = number(variables, "GPU_NUM", 1, kMostPerNode);
  if (!gpus || is_set(variables, "LOCAL_RANK")) return std::nullopt;
  RankInfo rank_info;
  rank_info.launcher = "guide";
  rank_info.local_ranks = *gpus;
  rank_info.nodes = number(variables, "WORLD_SIZE", 1, kMostRanks / kMostPerNode).value_or(1);
  rank_info.node = rank_info.nodes == 1
                       ? number(variables, "RANK", 0, 0).value_or(0)
                       : needed_number(variables, "RANK", 0, rank_info.nodes - 1,
                                       "GPU_NUM and WORLD_SIZE (the number of nodes)");
  rank_info.ranks = rank_info.nodes * rank_info.local_ranks;
  rank_info.rank = rank_info.node * rank_info.local_ranks;
  rank_info.master_address = address(variables, "MASTER_ADDR").value_or("");
  rank_info.master_port = number(variables, "MASTER_PORT", 1, kLastPort).value_or(0);
  return rank_info;
}

Variables variables_of(const RankInfo& rank_info) {
  Variables variables = {{"OCTAVO_RANK", std::to_string(rank_info.rank)},
                         {"OCTAVO_RANKS", std::to_string(rank_info.ranks)},
                         {"OCTAVO_LOCAL_RANK", std::to_string(rank_info.local_rank)},
                         {"OCTAVO_LOCAL_RANKS", std::to_string(rank_info.local_ranks)},
                         {"OCTAVO_NODE", std::to_string(rank_info.node)},
                         {"OCTAVO_NODES", std::to_string(rank_info.nodes)},
                         {"OCTAVO_GENERATION", std::to_string(rank_info.generation)},
                         {"OCTAVO_MASTER_ADDRESS", rank_info.master_address},
                         {"OCTAVO_MASTER_PORT", std::to_string(rank_info.master_port)}};
  if (rank_info.elastic) variables["OCTAVO_ELASTIC"] = "1";
  return variables;
}

}  // namespace octavo::launch

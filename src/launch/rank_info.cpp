#include "launch/rank_info.h"

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
  RankInfo place;
  place.launcher = "octavo";
  place.ranks = wanted("OCTAVO_RANKS", 1, kMostRanks);
  place.rank = wanted("OCTAVO_RANK", 0, place.ranks - 1);
  place.local_ranks = wanted("OCTAVO_LOCAL_RANKS", 1, place.ranks);
  place.local_rank = wanted("OCTAVO_LOCAL_RANK", 0, place.local_ranks - 1);
  place.nodes = wanted("OCTAVO_NODES", 1, place.ranks);
  place.node = wanted("OCTAVO_NODE", 0, place.nodes - 1);
  place.generation = wanted("OCTAVO_GENERATION", 0, kMostRanks);
  place.master_port = wanted("OCTAVO_MASTER_PORT", 1, kLastPort);
  place.master_address = address(variables, "OCTAVO_MASTER_ADDRESS").value_or("127.0.0.1");
  place.store_is_running = true;
  return place;
}

// RANK and WORLD_SIZE count processes, as torchrun and PyTorch's users set them.
RankInfo torchrun_place(const Variables& variables) {
  constexpr std::string_view kSelf = "RANK and WORLD_SIZE";
  RankInfo place;
  place.launcher = "torchrun";
  place.ranks = needed_number(variables, "WORLD_SIZE", 1, kMostRanks, "RANK");
  place.rank = needed_number(variables, "RANK", 0, place.ranks - 1, "WORLD_SIZE");
  place.local_ranks =
      number(variables, "LOCAL_WORLD_SIZE", 1, place.ranks).value_or(place.ranks == 1 ? 1 : 0);
  if (place.local_ranks == 0) needed_number(variables, "LOCAL_WORLD_SIZE", 1, place.ranks, kSelf);
  place.local_rank = needed_number(variables, "LOCAL_RANK", 0, place.local_ranks - 1, kSelf);
  if (const auto nodes = number(variables, "GROUP_WORLD_SIZE", 1, place.ranks)) {
    place.nodes = *nodes;
  } else {
    if (place.ranks % place.local_ranks != 0)
      fail(ExitCode::kUsage, "launch",
           "wanted WORLD_SIZE as a multiple of LOCAL_WORLD_SIZE, found ", place.ranks, " and ",
           place.local_ranks, "; give every node as many ranks");
    place.nodes = place.ranks / place.local_ranks;
  }
  place.node =
      number(variables, "GROUP_RANK", 0, place.nodes - 1).value_or(place.rank / place.local_ranks);
  place.store_is_torch = variable(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.store_is_running = place.store_is_torch;
  place.generation = number(variables, "TORCHELASTIC_RESTART_COUNT", 0, kMostRanks).value_or(0);
  if (place.ranks == 1) return place;
  const std::optional<std::string> master = address(variables, "MASTER_ADDR");
  if (!master)
    fail(ExitCode::kUsage, "launch", "wanted MASTER_ADDR beside ", kSelf, ", found it unset; ",
         "start the ranks with torchrun or octavo launch, or set it to the first node's address");
  place.master_address = *master;
  place.master_port = needed_number(variables, "MASTER_PORT", 1, kLastPort, kSelf);
  return place;
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
  RankInfo place;
  place.launcher = "mpi";
  place.ranks = needed_number(variables, ranks, 1, kMostRanks, rank);
  place.rank = needed_number(variables, rank, 0, place.ranks - 1, ranks);
  place.local_ranks = needed_number(variables, local_ranks, 1, place.ranks, rank);
  place.local_rank = needed_number(variables, local_rank, 0, place.local_ranks - 1, rank);
  // mpirun does not say which node this is: it follows from a layout in blocks.
  if (place.ranks % place.local_ranks != 0 || place.rank % place.local_ranks != place.local_rank)
    fail(ExitCode::kUsage, "launch", "mpirun: wanted nodes with as many ranks each, numbered node ",
         "by node, found rank ", place.rank, " of ", place.ranks, " as local rank ",
         place.local_rank, " of ", place.local_ranks, "; use --map-by slot --rank-by slot");
  place.nodes = place.ranks / place.local_ranks;
  place.node = place.rank / place.local_ranks;
  if (place.ranks == 1) return place;
  const std::optional<std::string> master = address(variables, "MASTER_ADDR");
  if (!master && place.nodes > 1)
    fail(ExitCode::kUsage, "launch", "mpirun over ", place.nodes, " nodes: wanted MASTER_ADDR, ",
         "found it unset; add -x MASTER_ADDR=<address of the first node>");
  place.master_address = master.value_or("127.0.0.1");
  place.master_port = mpi_port(variables, rank);
  return place;
}

// RANK and friends set by a hand-written script inside a step must say what the step says.
void check_against_slurm(const RankInfo& place, const Variables& variables) {
  if (!in_slurm_step(variables) || is_set(variables, "TORCHELASTIC_RUN_ID")) return;
  const RankInfo step = slurm_rank_info(variables);
  if (step.ranks == 1 || (step.rank == place.rank && step.ranks == place.ranks)) return;
  fail(ExitCode::kUsage, "launch", "wanted RANK and WORLD_SIZE as the SLURM step has them, found ",
       place.rank, " of ", place.ranks, " and SLURM_PROCID ", step.rank, " of ", step.ranks,
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
    RankInfo place = torchrun_place(variables);
    check_against_slurm(place, variables);
    return place;
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

std::optional<RankInfo> guide_rank_info(const Variables& variables) {
  constexpr int kMostPerNode = 1024;
  const std::optional<int> gpus = number(variables, "GPU_NUM", 1, kMostPerNode);
  if (!gpus || is_set(variables, "LOCAL_RANK")) return std::nullopt;
  RankInfo place;
  place.launcher = "guide";
  place.local_ranks = *gpus;
  place.nodes = number(variables, "WORLD_SIZE", 1, kMostRanks / kMostPerNode).value_or(1);
  place.node = place.nodes == 1 ? number(variables, "RANK", 0, 0).value_or(0)
                                : needed_number(variables, "RANK", 0, place.nodes - 1,
                                                "GPU_NUM and WORLD_SIZE (the number of nodes)");
  place.ranks = place.nodes * place.local_ranks;
  place.rank = place.node * place.local_ranks;
  place.master_address = address(variables, "MASTER_ADDR").value_or("");
  place.master_port = number(variables, "MASTER_PORT", 1, kLastPort).value_or(0);
  return place;
}

Variables variables_of(const RankInfo& place) {
  return {{"OCTAVO_RANK", std::to_string(place.rank)},
          {"OCTAVO_RANKS", std::to_string(place.ranks)},
          {"OCTAVO_LOCAL_RANK", std::to_string(place.local_rank)},
          {"OCTAVO_LOCAL_RANKS", std::to_string(place.local_ranks)},
          {"OCTAVO_NODE", std::to_string(place.node)},
          {"OCTAVO_NODES", std::to_string(place.nodes)},
          {"OCTAVO_GENERATION", std::to_string(place.generation)},
          {"OCTAVO_MASTER_ADDRESS", place.master_address},
          {"OCTAVO_MASTER_PORT", std::to_string(place.master_port)}};
}

}  // namespace octavo::launch

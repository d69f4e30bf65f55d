#include "launch/rank_info.h"

#include <gtest/gtest.h>

#include "expect_failure.h"
#include "launch/run.h"
#include "launch/slurm.h"

namespace octavo::launch {
namespace {

using Texts = std::vector<std::string>;

Variables with(Variables variables, const Variables& changed) {
  for (const auto& [name, value] : changed) variables[name] = value;
  return variables;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

// What srun 22.05 sets in a step of 3 tasks on two nodes.
const Variables kStep = {{"SLURM_JOB_ID", "4711"},        {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "2"},           {"SLURM_NTASKS", "3"},
                         {"SLURM_STEP_NUM_TASKS", "3"},   {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "1"},           {"SLURM_NNODES", "2"},
                         {"SLURM_TASKS_PER_NODE", "2,1"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"}};

const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"PMIX_NAMESPACE", "1234567"}};

const Variables kGuide = {{"GPU_NUM", "8"},
                          {"WORLD_SIZE", "2"},
                          {"RANK", "1"},
                          {"MASTER_ADDR", "192.168.0.1"},
                          {"MASTER_PORT", "29500"}};

TEST(RankInfo, AlonePlainlyStarted) {
  const RankInfo rank_info = rank_info_of({{"PATH", "/bin"}});
  EXPECT_EQ(rank_info.ranks, 1);
  EXPECT_EQ(rank_info.launcher, "");
  EXPECT_FALSE(rank_info.store_is_running);
}

// For messages of ranks whose variables are wrong otherwise.
TEST(RankInfo, ARankIsToldWhateverElseIsWrong) {
  const auto told = [](const Variables& variables) {
    const std::optional<ToldRank> found = told_rank(variables);
    return found ? str(found->rank, " of ", found->ranks) : "alone";
  };
  EXPECT_EQ(told({{"PATH", "/bin"}}), "alone");
  EXPECT_EQ(told(kTorchrun), "5 of 8");
  EXPECT_EQ(told(with(kTorchrun, {{"MASTER_PORT", ""}, {"LOCAL_WORLD_SIZE", "0"}})), "5 of 8");
  EXPECT_EQ(told(with(kTorchrun, {{"RANK", "x"}})), "alone");
  EXPECT_EQ(told(kStep), "2 of 3");
  EXPECT_EQ(told(with(kStep, {{"SLURM_STEP_ID", "4294967291"}})), "alone");  // a batch script
  EXPECT_EQ(told(kMpi), "1 of 2");
  EXPECT_EQ(told(kGuide), "alone");  // where RANK counts nodes
}

TEST(RankInfo, GpusThatSomebodyHidStayHidden) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(gpus_here({{"CUDA_VISIBLE_DEVICES", "0,1"}}), 2);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // which Variables have not
  EXPECT_EQ(gpus_here({}), 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(RankInfo, OctavoLaunch) {
  RankInfo given;
  given.rank = 3;
  given.ranks = 4;
  given.local_rank = 1;
  given.local_ranks = 2;
  given.node = 1;
  given.nodes = 2;
  given.generation = 6;
  given.master_address = "10.1.2.3";
  given.master_port = 4000;
  // Inside a step of SLURM, the launcher nearest to the rank is the one that counts.
  const RankInfo rank_info = rank_info_of(with(kStep, variables_of(given)));
  EXPECT_EQ(rank_info.launcher, "octavo");
  EXPECT_EQ(rank_info.rank, 3);
  EXPECT_EQ(rank_info.local_ranks, 2);
  EXPECT_EQ(rank_info.node, 1);
  EXPECT_EQ(rank_info.generation, 6);
  EXPECT_EQ(rank_info.master_address, "10.1.2.3");
  EXPECT_EQ(rank_info.master_port, 4000);
  EXPECT_TRUE(rank_info.store_is_running);
  EXPECT_FALSE(rank_info.store_is_torch);
  EXPECT_FALSE(rank_info.elastic);
  given.elastic = true;
  EXPECT_TRUE(rank_info_of(variables_of(given)).elastic);
  expect_failure(ExitCode::kUsage, "OCTAVO_LOCAL_RANK: wanted an integer from 0 to 1, found '7'",
                 [&] {
                   rank_info_of(with(variables_of(given), {{"OCTAVO_LOCAL_RANK", "7"}}));
                 });
  expect_failure(ExitCode::kUsage, "OCTAVO_RANKS", [&] {
    rank_info_of(with(variables_of(given), {{"OCTAVO_RANKS", ""}}));
  });
}

TEST(RankInfo, Torchrun) {
  const RankInfo rank_info = rank_info_of(kTorchrun);
  EXPECT_EQ(rank_info.launcher, "torchrun");
  EXPECT_EQ(rank_info.rank, 5);
  EXPECT_EQ(rank_info.ranks, 8);
  EXPECT_EQ(rank_info.local_rank, 1);
  EXPECT_EQ(rank_info.node, 1);
  EXPECT_EQ(rank_info.nodes, 2);
  EXPECT_EQ(rank_info.generation, 2);
  EXPECT_TRUE(rank_info.store_is_torch);
  const RankInfo own_store =
      rank_info_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_FALSE(own_store.store_is_torch);
  EXPECT_FALSE(own_store.store_is_running);
}

TEST(RankInfo, TorchrunWithMistakes) {
  const std::pair<Variables, const char*> mistakes[] = {
      {{{"RANK", "8"}}, "RANK: wanted an integer from 0 to 7, found '8'"},
      {{{"RANK", "first"}}, "found 'first'"},
      {{{"WORLD_SIZE", ""}}, "wanted WORLD_SIZE beside RANK"},
      {{{"LOCAL_WORLD_SIZE", "3"}}, "wanted WORLD_SIZE as a multiple of LOCAL_WORLD_SIZE"},
      {{{"LOCAL_RANK", "4"}}, "LOCAL_RANK"},
      {{{"LOCAL_RANK", ""}}, "wanted LOCAL_RANK beside RANK and WORLD_SIZE"},
      {{{"MASTER_ADDR", ""}}, "wanted MASTER_ADDR"},
      {{{"MASTER_ADDR", "a b"}}, "MASTER_ADDR: wanted a host name"},
      {{{"MASTER_PORT", "99999"}}, "MASTER_PORT: wanted an integer from 1 to 65535"}};
  for (const auto& mistake : mistakes)
    expect_failure(ExitCode::kUsage, mistake.second,
                   [&] { rank_info_of(with(kTorchrun, mistake.first)); });
}

TEST(RankInfo, SlurmStep) {
  const RankInfo rank_info = rank_info_of(kStep);
  EXPECT_EQ(rank_info.launcher, "slurm");
  EXPECT_EQ(rank_info.rank, 2);
  EXPECT_EQ(rank_info.ranks, 3);
  EXPECT_EQ(rank_info.local_ranks, 1);
  EXPECT_EQ(rank_info.nodes, 2);
  EXPECT_EQ(rank_info.master_address, "gpu07");
  EXPECT_EQ(rank_info.master_port, 12000 + 4711);
  const RankInfo chosen =
      rank_info_of(with(kStep, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(chosen.master_address, "head");
  EXPECT_EQ(chosen.master_port, 1234);
  // On one node nobody else needs to come in.
  const Variables near = {{"SLURM_NNODES", "1"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_LOCALID", "2"},
                          {"SLURM_TASKS_PER_NODE", "3"},
                          {"SLURM_STEP_NODELIST", "gpu07"}};
  EXPECT_EQ(rank_info_of(with(kStep, near)).master_address, "127.0.0.1");
}

TEST(RankInfo, SlurmMasterThatNobodyElseReaches) {
  const Variables first = {
      {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_NODELIST", "localhost,gpu08"}};
  expect_failure(ExitCode::kEnvironment, "export MASTER_ADDR",
                 [&] { rank_info_of(with(kStep, first)); });
  EXPECT_EQ(rank_info_of(with(with(kStep, first), {{"MASTER_ADDR", "192.0.2.7"}})).master_address,
            "192.0.2.7");
}

TEST(RankInfo, ShellsOfSlurmAreNoRanks) {
  // A batch script has a rank and no step; an interactive shell has a step of a special number.
  for (const char* step : {"", "4294967290", "4294967291"}) {
    const RankInfo rank_info = rank_info_of(with(kStep, {{"SLURM_STEP_ID", step}}));
    EXPECT_EQ(rank_info.ranks, 1) << step;
    EXPECT_EQ(rank_info.launcher, "") << step;
  }
}

TEST(RankInfo, SlurmWithMistakes) {
  expect_failure(ExitCode::kUsage, "wanted tasks for 2 nodes", [] {
    rank_info_of(with(kStep, {{"SLURM_TASKS_PER_NODE", "3"}}));
  });
  expect_failure(ExitCode::kUsage, "SLURM_LOCALID", [] {
    rank_info_of(with(kStep, {{"SLURM_LOCALID", ""}}));
  });
  // A script's own RANK must be the step's; torchrun's need not.
  const Variables other = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  expect_failure(ExitCode::kUsage, "unset RANK and WORLD_SIZE",
                 [&] { rank_info_of(with(kStep, other)); });
  EXPECT_EQ(rank_info_of(with(with(kStep, other), {{"TORCHELASTIC_RUN_ID", "x"}})).launcher,
            "torchrun");
}

TEST(RankInfo, Mpirun) {
  const RankInfo rank_info = rank_info_of(kMpi);
  EXPECT_EQ(rank_info.launcher, "mpi");
  EXPECT_EQ(rank_info.rank, 1);
  EXPECT_EQ(rank_info.nodes, 1);
  EXPECT_EQ(rank_info.master_address, "127.0.0.1");
  EXPECT_GE(rank_info.master_port, 12000);
  EXPECT_EQ(
      rank_info.master_port,
      rank_info_of(with(kMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))
          .master_port);
  const Variables two_nodes = {{"OMPI_COMM_WORLD_SIZE", "4"}};
  expect_failure(ExitCode::kUsage, "-x MASTER_ADDR", [&] { rank_info_of(with(kMpi, two_nodes)); });
  expect_failure(ExitCode::kUsage, "--map-by slot", [] {
    rank_info_of(with(kMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}}));
  });
}

TEST(RankInfo, Hydra) {
  const Variables hydra = {{"PMI_RANK", "1"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "1"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"MASTER_PORT", "29400"}};
  EXPECT_EQ(rank_info_of(hydra).rank, 1);
  EXPECT_EQ(rank_info_of(hydra).launcher, "mpi");
  expect_failure(ExitCode::kUsage, "MASTER_PORT", [&] {
    rank_info_of(with(hydra, {{"MASTER_PORT", ""}}));
  });
  // srun --mpi=pmi2 sets PMI's variables as well: the step's own say more.
  EXPECT_EQ(rank_info_of(with(kStep, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})).launcher, "slurm");
}

TEST(RankInfo, GuideIsForLaunch) {
  expect_failure(ExitCode::kUsage, "octavo launch -- train", [] { rank_info_of(kGuide); });
  const std::optional<RankInfo> rank_info = guide_rank_info(kGuide);
  ASSERT_TRUE(rank_info);
  EXPECT_EQ(rank_info->local_ranks, 8);
  EXPECT_EQ(rank_info->nodes, 2);
  EXPECT_EQ(rank_info->node, 1);
  EXPECT_EQ(rank_info->rank, 8);
  EXPECT_EQ(rank_info->ranks, 16);
  EXPECT_EQ(rank_info->master_address, "192.168.0.1");
  EXPECT_FALSE(guide_rank_info(kTorchrun));
  EXPECT_FALSE(
      guide_rank_info(with(kTorchrun, {{"GPU_NUM", "4"}})));  // torchrun under such a script
  EXPECT_EQ(rank_info_of(with(kTorchrun, {{"GPU_NUM", "4"}})).ranks, 8);
  expect_failure(ExitCode::kUsage, "RANK: wanted an integer from 0 to 1", [] {
    guide_rank_info(with(kGuide, {{"RANK", "2"}}));
  });
  expect_failure(ExitCode::kUsage, "GPU_NUM", [] {
    guide_rank_info(with(kGuide, {{"GPU_NUM", "all"}}));
  });
}

TEST(Slurm, NodeLists) {
  EXPECT_EQ(expand_hosts("one"), Texts{"one"});
  EXPECT_EQ(expand_hosts("node[01-03,7],login"),
            (Texts{"node01", "node02", "node03", "node7", "login"}));
  EXPECT_EQ(expand_hosts("node[098-101]"), (Texts{"node098", "node099", "node100", "node101"}));
  EXPECT_EQ(expand_hosts("r[1-2]n[1-2]x"), (Texts{"r1n1x", "r1n2x", "r2n1x", "r2n2x"}));
  for (const char* bad : {"", "a,", "n[1", "n1]", "n[2-1]", "n[a]", "n[[1]]", "n[0-4294967295]",
                          "n[0-99999]m[0-99999]"})
    expect_failure(ExitCode::kUsage, "SLURM: wanted a list", [&] { expand_hosts(bad); });
}

TEST(Slurm, Counts) {
  EXPECT_EQ(expand_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("8"), std::vector<int>{8});
  for (const char* bad : {"", "0", "2(x", "2(x3", "x", "2(x0)", "2(x999999999)", "-1"})
    expect_failure(ExitCode::kUsage, "SLURM: wanted a list", [&] { expand_counts(bad); });
}

}  // namespace
}  // namespace octavo::launch

#include "launch/place.h"

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

TEST(Place, AlonePlainlyStarted) {
  const Place place = place_of({{"PATH", "/bin"}});
  EXPECT_EQ(place.ranks, 1);
  EXPECT_EQ(place.launcher, "");
  EXPECT_FALSE(place.store_is_running);
}

TEST(Place, GpusThatSomebodyHidStayHidden) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(gpus_here({{"CUDA_VISIBLE_DEVICES", "0,1"}}), 2);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // which Variables have not
  EXPECT_EQ(gpus_here({}), 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Place, OctavoLaunch) {
  Place given;
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
  const Place place = place_of(with(kStep, variables_of(given)));
  EXPECT_EQ(place.launcher, "octavo");
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.local_ranks, 2);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.generation, 6);
  EXPECT_EQ(place.master_address, "10.1.2.3");
  EXPECT_EQ(place.master_port, 4000);
  EXPECT_TRUE(place.store_is_running);
  EXPECT_FALSE(place.store_is_torch);
  expect_failure(ExitCode::kUsage, "OCTAVO_LOCAL_RANK: wanted an integer from 0 to 1, found '7'",
                 [&] {
                   place_of(with(variables_of(given), {{"OCTAVO_LOCAL_RANK", "7"}}));
                 });
  expect_failure(ExitCode::kUsage, "OCTAVO_RANKS", [&] {
    place_of(with(variables_of(given), {{"OCTAVO_RANKS", ""}}));
  });
}

TEST(Place, Torchrun) {
  const Place place = place_of(kTorchrun);
  EXPECT_EQ(place.launcher, "torchrun");
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.ranks, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.nodes, 2);
  EXPECT_EQ(place.generation, 2);
  EXPECT_TRUE(place.store_is_torch);
  const Place own_store = place_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}));
  EXPECT_FALSE(own_store.store_is_torch);
  EXPECT_FALSE(own_store.store_is_running);
}

TEST(Place, TorchrunWithMistakes) {
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
                   [&] { place_of(with(kTorchrun, mistake.first)); });
}

TEST(Place, SlurmStep) {
  const Place place = place_of(kStep);
  EXPECT_EQ(place.launcher, "slurm");
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.ranks, 3);
  EXPECT_EQ(place.local_ranks, 1);
  EXPECT_EQ(place.nodes, 2);
  EXPECT_EQ(place.master_address, "gpu07");
  EXPECT_EQ(place.master_port, 12000 + 4711);
  const Place chosen = place_of(with(kStep, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}}));
  EXPECT_EQ(chosen.master_address, "head");
  EXPECT_EQ(chosen.master_port, 1234);
  // On one node nobody else needs to come in.
  const Variables near = {{"SLURM_NNODES", "1"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_LOCALID", "2"},
                          {"SLURM_TASKS_PER_NODE", "3"},
                          {"SLURM_STEP_NODELIST", "gpu07"}};
  EXPECT_EQ(place_of(with(kStep, near)).master_address, "127.0.0.1");
}

TEST(Place, SlurmMasterThatNobodyElseReaches) {
  const Variables first = {
      {"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_NODELIST", "localhost,gpu08"}};
  expect_failure(ExitCode::kEnvironment, "export MASTER_ADDR",
                 [&] { place_of(with(kStep, first)); });
  EXPECT_EQ(place_of(with(with(kStep, first), {{"MASTER_ADDR", "192.0.2.7"}})).master_address,
            "192.0.2.7");
}

TEST(Place, ShellsOfSlurmAreNoRanks) {
  // A batch script has a rank and no step; an interactive shell has a step of a special number.
  for (const char* step : {"", "4294967290", "4294967291"}) {
    const Place place = place_of(with(kStep, {{"SLURM_STEP_ID", step}}));
    EXPECT_EQ(place.ranks, 1) << step;
    EXPECT_EQ(place.launcher, "") << step;
  }
}

TEST(Place, SlurmWithMistakes) {
  expect_failure(ExitCode::kUsage, "wanted tasks for 2 nodes", [] {
    place_of(with(kStep, {{"SLURM_TASKS_PER_NODE", "3"}}));
  });
  expect_failure(ExitCode::kUsage, "SLURM_LOCALID", [] {
    place_of(with(kStep, {{"SLURM_LOCALID", ""}}));
  });
  // A script's own RANK must be the step's; torchrun's need not.
  const Variables other = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  expect_failure(ExitCode::kUsage, "unset RANK and WORLD_SIZE",
                 [&] { place_of(with(kStep, other)); });
  EXPECT_EQ(place_of(with(with(kStep, other), {{"TORCHELASTIC_RUN_ID", "x"}})).launcher,
            "torchrun");
}

TEST(Place, Mpirun) {
  const Place place = place_of(kMpi);
  EXPECT_EQ(place.launcher, "mpi");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.nodes, 1);
  EXPECT_EQ(place.master_address, "127.0.0.1");
  EXPECT_GE(place.master_port, 12000);
  EXPECT_EQ(
      place.master_port,
      place_of(with(kMpi, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}))
          .master_port);
  const Variables two_nodes = {{"OMPI_COMM_WORLD_SIZE", "4"}};
  expect_failure(ExitCode::kUsage, "-x MASTER_ADDR", [&] { place_of(with(kMpi, two_nodes)); });
  expect_failure(ExitCode::kUsage, "--map-by slot", [] {
    place_of(with(kMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}}));
  });
}

TEST(Place, Hydra) {
  const Variables hydra = {{"PMI_RANK", "1"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "1"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"MASTER_PORT", "29400"}};
  EXPECT_EQ(place_of(hydra).rank, 1);
  EXPECT_EQ(place_of(hydra).launcher, "mpi");
  expect_failure(ExitCode::kUsage, "MASTER_PORT", [&] {
    place_of(with(hydra, {{"MASTER_PORT", ""}}));
  });
  // srun --mpi=pmi2 sets PMI's variables as well: the step's own say more.
  EXPECT_EQ(place_of(with(kStep, {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}})).launcher, "slurm");
}

TEST(Place, GuideIsForLaunch) {
  expect_failure(ExitCode::kUsage, "octavo launch -- train", [] { place_of(kGuide); });
  const std::optional<Place> place = guide_place(kGuide);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->local_ranks, 8);
  EXPECT_EQ(place->nodes, 2);
  EXPECT_EQ(place->node, 1);
  EXPECT_EQ(place->rank, 8);
  EXPECT_EQ(place->ranks, 16);
  EXPECT_EQ(place->master_address, "192.168.0.1");
  EXPECT_FALSE(guide_place(kTorchrun));
  EXPECT_FALSE(guide_place(with(kTorchrun, {{"GPU_NUM", "4"}})));  // torchrun under such a script
  EXPECT_EQ(place_of(with(kTorchrun, {{"GPU_NUM", "4"}})).ranks, 8);
  expect_failure(ExitCode::kUsage, "RANK: wanted an integer from 0 to 1", [] {
    guide_place(with(kGuide, {{"RANK", "2"}}));
  });
  expect_failure(ExitCode::kUsage, "GPU_NUM", [] {
    guide_place(with(kGuide, {{"GPU_NUM", "all"}}));
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

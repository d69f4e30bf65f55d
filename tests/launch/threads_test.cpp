#include "launch/threads.h"

#include <gtest/gtest.h>

namespace octavo::launch {
namespace {

const CpuShare kEightCores{.cpus = 16, .cores = 8, .node_cores = 8};

TEST(Threads, AsManyAsPhysicalCores) {
  const ThreadChoice chosen = choose_threads(0, {}, {}, kEightCores);
  EXPECT_EQ(chosen.count, 8);
  EXPECT_EQ(chosen.reason, "for 8 physical cores (16 hardware threads)");
}

TEST(Threads, RanksOfANodeShare) {
  const RankInfo four{.ranks = 8, .local_ranks = 4, .nodes = 2, .launcher = "octavo"};
  const ThreadChoice chosen = choose_threads(0, four, {}, kEightCores);
  EXPECT_EQ(chosen.count, 2);
  EXPECT_EQ(chosen.reason, "for 8 physical cores (16 hardware threads), 4 ranks on this node");
}

// srun and mpirun give each rank cores of its own.
TEST(Threads, ABoundRankKeepsItsCores) {
  const CpuShare own{.cpus = 2, .cores = 2, .node_cores = 8};
  for (const char* launcher : {"slurm", "mpi"})
    EXPECT_EQ(choose_threads(0, {.local_ranks = 4, .launcher = launcher}, {}, own).count, 2);
  EXPECT_EQ(choose_threads(0, {.local_ranks = 4, .launcher = "octavo"}, {}, own).count, 1);
}

TEST(Threads, TheKeyComesFirstThenTheVariable) {
  const Variables three = {{"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(choose_threads(5, {}, three, kEightCores).count, 5);
  EXPECT_EQ(choose_threads(5, {}, three, kEightCores).reason,
            "as num_threads says (found 8 physical cores (16 hardware threads))");
  EXPECT_EQ(choose_threads(0, {}, three, kEightCores).count, 3);
  EXPECT_TRUE(
      choose_threads(0, {}, three, kEightCores).reason.starts_with("as OMP_NUM_THREADS=3 says"));
  EXPECT_EQ(choose_threads(0, {}, {{"OMP_NUM_THREADS", "4,2"}}, kEightCores).count, 4);
}

// The OpenMP runtime warns of them and ignores them.
TEST(Threads, AVariableThatIsNoNumberIsNotSet) {
  for (const char* value : {"none", "0", "-2", "", "8x", ",2"})
    EXPECT_EQ(choose_threads(0, {}, {{"OMP_NUM_THREADS", value}}, kEightCores).count, 8) << value;
}

}  // namespace
}  // namespace octavo::launch

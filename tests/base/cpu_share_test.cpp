#include "base/cpu_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "scratch.h"

namespace octavo {
namespace {

// A machine's proc and sys, as much of them as is read.
class CpuShareTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }

  // Two hardware threads a core, numbered as Linux does on x86: 0 and `cores` share the first.
  void have_cores(int cores, bool smt) const {
    const int cpus = smt ? 2 * cores : cores;
    write("sys/devices/system/cpu/online", "0-" + std::to_string(cpus - 1) + "\n");
    for (int cpu = 0; cpu < cpus; ++cpu) {
      const int core = cpu % cores;
      const std::string siblings =
          smt ? std::to_string(core) + "," + std::to_string(core + cores) : std::to_string(core);
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            siblings + "\n");
    }
  }

  void have_unified(const std::string& shown, const std::string& group) const {
    write("proc/self/mountinfo",
          "22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw\n"
          "30 22 0:26 " +
              shown + " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    write("proc/self/cgroup", "0::" + group + "\n");
  }

  static std::vector<int> first(int cpus) {
    std::vector<int> all(static_cast<size_t>(cpus));
    for (int cpu = 0; cpu < cpus; ++cpu) all[static_cast<size_t>(cpu)] = cpu;
    return all;
  }
  CpuShare share(int cpus) const { return cpu_share(first(cpus), root_.path()); }

  Scratch root_;
};

TEST_F(CpuShareTest, HardwareThreadsOfOneCoreCountOnce) {
  have_cores(8, /*smt=*/true);
  const CpuShare all = share(16);
  EXPECT_EQ(all.cpus, 16);
  EXPECT_EQ(all.cores, 8);
  EXPECT_EQ(all.node_cores, 8);
  EXPECT_EQ(all.threads(), 8);
  EXPECT_EQ(words_of(all), "8 physical cores (16 hardware threads)");
  EXPECT_EQ(share(8).threads(), 8);  // one hardware thread of each
  EXPECT_EQ(words_of(share(8)), "8 physical cores");
}

TEST_F(CpuShareTest, TheAffinityMaskLimits) {
  have_cores(8, /*smt=*/true);
  const CpuShare some = cpu_share({2, 3, 10, 11}, root_.path());
  EXPECT_EQ(some.threads(), 2);
  EXPECT_EQ(words_of(some), "2 of 8 physical cores (4 hardware threads)");
  EXPECT_EQ(words_of(cpu_share({5}, root_.path())), "1 of 8 physical cores");
}

TEST_F(CpuShareTest, NewerKernelsNameTheFileOtherwise) {
  for (int cpu = 0; cpu < 4; ++cpu)
    write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
          cpu < 2 ? "0-1\n" : "2-3\n");
  EXPECT_EQ(share(4).threads(), 2);
}

TEST_F(CpuShareTest, WithoutFilesEveryCpuIsACore) {
  EXPECT_EQ(share(6).threads(), 6);
  EXPECT_EQ(share(6).quota, 0);
  EXPECT_EQ(share(0).threads(), 1);
  EXPECT_EQ(words_of(share(1)), "1 physical core");
}

TEST_F(CpuShareTest, AQuotaOfVersionTwoLimits) {
  have_cores(16, /*smt=*/false);
  have_unified("/", "/");
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(share(16).quota, 2.5);
  EXPECT_EQ(share(16).threads(), 3) << "a part of a CPU is used by a thread of its own";
  EXPECT_EQ(share(2).threads(), 2);
  EXPECT_EQ(words_of(share(16)), "16 physical cores, CPU quota 2.5");
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(share(16).threads(), 1);
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(share(16).threads(), 16);
}

TEST_F(CpuShareTest, GroupsAboveLimitToo) {
  have_cores(16, /*smt=*/false);
  have_unified("/", "/jobs.slice/job-7");
  write("sys/fs/cgroup/jobs.slice/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/jobs.slice/job-7/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/others/cpu.max", "100000 100000\n");  // not ours
  EXPECT_EQ(share(16).threads(), 4);
  write("sys/fs/cgroup/jobs.slice/job-7/cpu.max", "200000 100000\n");
  EXPECT_EQ(share(16).threads(), 2);
}

TEST_F(CpuShareTest, AContainerSeesItsOwnGroupAsTheMount) {
  have_cores(16, /*smt=*/false);
  have_unified("/docker/4f", "/docker/4f/child");
  write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(share(16).threads(), 3);
  write("sys/fs/cgroup/child/cpu.max", "100000 100000\n");
  EXPECT_EQ(share(16).threads(), 1);
  have_unified("/docker/4f", "/docker/4fe");  // another one's name that begins alike
  EXPECT_EQ(share(16).threads(), 3);
  have_unified("/", "/../../other");  // the process was moved out of the group that it sees
  EXPECT_EQ(share(16).threads(), 3);
}

TEST_F(CpuShareTest, AQuotaOfVersionOneLimits) {
  have_cores(16, /*smt=*/false);
  write("proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/pod/c\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(share(16).threads(), 16);
  write("sys/fs/cgroup/cpu,cpuacct/pod/c/cpu.cfs_quota_us", "600000\n");
  write("sys/fs/cgroup/cpu,cpuacct/pod/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(share(16).threads(), 6);
}

TEST_F(CpuShareTest, WhatIsNoNumberIsNoLimit) {
  have_cores(4, /*smt=*/false);
  have_unified("/", "/");
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000 0", "1e300 1e-300", "a b",
                           "100000 100000 1", "nan 1"}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(share(4).threads(), 4) << text;
  }
  write("proc/self/mountinfo", "no such line\n - \n1 2 3 4 5 - cgroup2\n");
  write("sys/devices/system/cpu/online", "0-999999999\n");
  EXPECT_EQ(share(4).node_cores, 4);
}

TEST_F(CpuShareTest, RanksOfANodeDivideIt) {
  CpuShare share{.cpus = 16, .cores = 8, .node_cores = 8};
  EXPECT_EQ(threads_of_rank(share, 1, /*bind=*/false), 8);
  EXPECT_EQ(threads_of_rank(share, 3, /*bind=*/false), 2);
  EXPECT_EQ(threads_of_rank(share, 100, /*bind=*/false), 1);
  share.quota = 3.5;
  EXPECT_EQ(threads_of_rank(share, 2, /*bind=*/false), 2);
  EXPECT_EQ(threads_of_rank(share, 2, /*bind=*/true), 2);
}

TEST_F(CpuShareTest, AMaskOfARanksOwnIsNotDividedAgain) {
  const CpuShare own{.cpus = 4, .cores = 2, .node_cores = 8};
  EXPECT_EQ(threads_of_rank(own, 4, /*bind=*/true), 2);
  EXPECT_EQ(threads_of_rank(own, 4, /*bind=*/false), 1);
  const CpuShare socket{.cpus = 8, .cores = 4, .node_cores = 8};  // two ranks on each of two
  EXPECT_EQ(threads_of_rank(socket, 4, /*bind=*/true), 2);
}

TEST_F(CpuShareTest, ThisMachineHasSome) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_TRUE(std::ranges::is_sorted(cpus));
  const CpuShare own = own_cpu_share();
  EXPECT_EQ(own.cpus, static_cast<int>(cpus.size()));
  EXPECT_GE(own.threads(), 1);
  EXPECT_LE(own.threads(), own.cpus);
  EXPECT_LE(own.cores, own.node_cores);
}

}  // namespace
}  // namespace octavo

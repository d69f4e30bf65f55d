#pragma once
// How much of this machine's CPUs the process may use: its affinity mask, the cores that hardware
// threads share, and the CPU quota of its control groups. A thread beyond that makes nothing
// faster: the others wait for it.

#include <string>
#include <vector>

#include "base/file.h"

namespace octavo {

struct CpuShare {
  int cpus = 1;        // hardware threads in the affinity mask
  int cores = 1;       // the cores that they are threads of
  int node_cores = 1;  // all cores of the machine
  double quota = 0;    // CPUs' time that the control groups allow; 0: no limit

  // Threads that can compute at the same time; a part of a CPU counts as one.
  int threads() const;
};

// The hardware threads that this process may run on.
std::vector<int> allowed_cpus();

// `root` holds proc and sys; what cannot be read there is no limit.
CpuShare cpu_share(const std::vector<int>& allowed, const fs::path& root);
inline CpuShare own_cpu_share() {
  return cpu_share(allowed_cpus(), "/");
}

// Ranks of a node divide it between them. Launchers that `bind` ranks (srun, mpirun) have often
// given each a mask of its own already, which is not divided again.
int threads_of_rank(const CpuShare& share, int local_ranks, bool bind);

// "4 of 16 physical cores (8 hardware threads), CPU quota 2.5"
std::string words_of(const CpuShare& share);

}  // namespace octavo

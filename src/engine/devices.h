#pragma once
// The GPUs of this machine. Looking for them costs nothing where there is no driver: the GPU module
// and libtorch_cuda are loaded only after libcuda.so.1 was found and started.

#include <cstdint>
#include <string>
#include <vector>

namespace octavo::engine {

struct GpuInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  uint64_t memory_bytes = 0;
  int multiprocessors = 0;
};

struct GpuSearch {
  std::vector<GpuInfo> gpus;
  std::string reason;  // why there are none
};

// Must run before anything asks libtorch about CUDA: its first answer is kept for good.
GpuSearch find_gpus();

}  // namespace octavo::engine

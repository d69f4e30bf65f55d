#pragma once
// The GPUs of this machine. Looking for them costs nothing where there is no driver: the GPU module
// and libtorch_cuda are loaded only after libcuda.so.1 was found and started.

#include <c10/core/Device.h>

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

// Looked for once. The first call must come before anything asks libtorch about CUDA, which keeps
// its first answer for good.
const GpuSearch& gpus();

// A device of src/fake_cuda: kernels do not run there, and whatever does must say so.
bool is_fake(at::Device device);
// Such a device that was told to compute (OCTAVO_FAKE_CUDA_COMPUTE): what is known to the host is
// done there, in the device's memory.
bool computes_on_host(at::Device device);

}  // namespace octavo::engine

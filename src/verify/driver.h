#pragma once
// The NVIDIA driver and what its NVML tells of the GPUs, without CUDA and without libtorch.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace octavo::verify {

struct Version {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const Version&) const = default;
  bool known() const { return major != 0; }
  std::string text() const;  // "13.2", "2.30.7"; "unknown"
};

struct Driver {
  std::string file;      // of libcuda.so.1; "" when there is none
  std::string version;   // of the kernel module, such as 580.65.06
  Version cuda;          // the newest CUDA that it knows
  int nvidia_cards = 0;  // on the PCI bus, driver or not
};

// The part that only NVML knows.
struct GpuState {
  std::string name;
  int major = 0, minor = 0;  // compute capability; 0.0: not told
  uint64_t memory_used = 0, memory_total = 0;
  int pcie_generation = 0, pcie_generation_most = 0, pcie_width = 0, pcie_width_most = 0;
  int nvlinks = 0;  // active
};
struct Link {
  int first = 0, second = 0;
  bool nvlink = false;
  std::string path;  // "through one PCIe switch", "across processors"
};
struct Nvml {
  std::string problem;         // why nothing is known; "" when it is
  std::string driver;          // its version
  std::vector<GpuState> gpus;  // all of the machine, whatever CUDA_VISIBLE_DEVICES says
  std::vector<Link> links;
};

Driver gather_driver();
Nvml gather_nvml();

}  // namespace octavo::verify

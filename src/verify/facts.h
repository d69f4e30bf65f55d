#pragma once
// What a machine is, gathered once (gather.h), so that judging it (judge.h) is a pure function: a
// test builds the facts of a machine that it does not have.

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/devices.h"

namespace octavo::verify {

struct Version {
  int major = 0, minor = 0, patch = 0;
  auto operator<=>(const Version&) const = default;
  bool known() const { return major != 0; }
  std::string text() const;  // "13.2", "2.30.7"; "unknown"
};

// A shared library that the GPU path needs.
struct Library {
  std::string file;  // "" when it is nowhere
  Version version;
  Version built_for;                // the CUDA runtime that it says it was built with
  std::vector<std::string> needed;  // sonames that its file asks for
  std::string problem;              // why it does not load
  // Another file of that name, which LD_LIBRARY_PATH or the system's cache would give.
  std::string other_file;
  Version other_version;
};

struct Libraries {
  Library cudart, cublaslt, cudnn, nccl, nvrtc, te;
  Version torch_built, torch_found;  // octavo's headers; the library beside which it runs
  int cuda_major = 0;                // that libtorch_cuda asks for
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

struct Interface {
  std::string name;
  bool up = false, loopback = false;
  std::vector<std::string> addresses;
};

struct Disk {
  std::string folder;  // of the checkpoints
  std::string tested;  // it, or the nearest folder above it that exists
  uint64_t free_bytes = 0;
  double write_rate = 0;  // bytes a second, fsync included
  std::string problem;
};

struct Host {
  std::string cpu;
  int cores = 0;  // that this process may use
  bool avx2 = false, avx512 = false, avx512_bf16 = false, amx_bf16 = false;
  uint64_t memory_total = 0, memory_available = 0;
  uint64_t memory_limit = 0;  // of the control group; 0: none
  uint64_t shm_total = 0, shm_free = 0;
  bool infiniband = false;
};

struct Facts {
  bool fake_device = false;  // src/fake_cuda stands in for a GPU
  engine::GpuSearch gpus;
  Driver driver;
  Nvml nvml;
  Libraries libraries;
  std::map<std::string, std::string> environment;  // secrets: "set"
  std::vector<std::string> missing_files;          // that a variable names and that are not there
  std::vector<Interface> interfaces;
  Disk disk;
  Host host;
};

}  // namespace octavo::verify

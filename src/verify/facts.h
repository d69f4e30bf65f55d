#pragma once
// What a machine is, gathered once (gather.h), so that judging it (judge.h) is a pure function: a
// test builds the facts of a machine that it does not have.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/devices.h"
#include "verify/driver.h"

namespace octavo::verify {

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
  bool arm_bf16 = false;  // BFMMLA of aarch64
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

#pragma once
// Facts of a machine that this one is not: a healthy one with an H100, to be spoiled by each test.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "verify/judge.h"

namespace octavo::verify {

inline engine::GpuInfo gpu_of(int major, int minor, const char* name = "NVIDIA H100 80GB HBM3") {
  engine::GpuInfo gpu;
  gpu.name = name;
  gpu.major = major;
  gpu.minor = minor;
  gpu.memory_bytes = uint64_t{80} << 30;
  gpu.multiprocessors = 132;
  return gpu;
}

inline Library library(std::string file, Version version, Version built_for = {}) {
  Library l;
  l.file = std::move(file);
  l.version = version;
  l.built_for = built_for;
  return l;
}

inline Facts healthy() {
  Facts f;
  f.gpus.gpus = {gpu_of(9, 0)};
  f.driver.file = "libcuda.so.1";
  f.driver.version = "580.65.06";
  f.driver.cuda = {13, 2, 0};
  f.driver.nvidia_cards = 1;
  GpuState state;
  state.memory_total = uint64_t{80} << 30;
  state.pcie_width = state.pcie_width_most = 16;
  state.nvlinks = 18;
  f.nvml.gpus = {state};
  f.libraries.torch_built = f.libraries.torch_found = {2, 15, 0};
  f.libraries.cuda_major = 13;
  f.libraries.cudart = library("libcudart.so.13", {13, 2, 0});
  f.libraries.cublaslt = library("libcublasLt.so.13", {13, 4, 1}, {13, 0, 0});
  f.libraries.cudnn = library("libcudnn.so.9", {9, 26, 0}, {13, 4, 0});
  f.libraries.nccl = library("libnccl.so.2", {2, 30, 7});
  f.libraries.nvrtc = library("libnvrtc.so.13", {13, 2, 0});
  f.libraries.te = library("libtransformer_engine.so", {2, 20, 2});
  f.libraries.te.needed = {"libcublas.so.13", "libcudart.so.13", "libc.so.6"};
  f.interfaces = {{"lo", true, true, {"127.0.0.1"}},
                  {"eth0", true, false, {"10.0.0.5"}},
                  {"eth1", false, false, {}},
                  {"ib0", true, false, {}}};
  f.disk = {"checkpoints", "checkpoints", uint64_t{500} << 30, 1e9, ""};
  f.host.cpu = "a processor";
  f.host.cores = 32;
  f.host.avx2 = f.host.avx512 = f.host.avx512_bf16 = f.host.amx_bf16 = true;
  f.host.memory_total = f.host.memory_available = uint64_t{256} << 30;
  f.host.shm_total = f.host.shm_free = uint64_t{64} << 30;
  return f;
}

inline Facts without_gpu() {
  Facts f = healthy();
  f.gpus.gpus.clear();
  f.gpus.reason = "no NVIDIA driver: libcuda.so.1 is not on this machine";
  f.driver = {};
  f.nvml = {};
  f.nvml.problem = "NVML (libnvidia-ml.so.1) is not on this machine";
  return f;
}

inline Finding finding(const std::vector<Finding>& all, const std::string& id) {
  const auto it = std::ranges::find(all, id, &Finding::id);
  if (it != all.end()) return *it;
  std::string names;
  for (const Finding& f : all) names += " [" + f.id + "]";
  ADD_FAILURE() << "no finding '" << id << "' among" << names;
  return {};
}

inline bool has_finding(const std::vector<Finding>& all, const std::string& id) {
  return std::ranges::find(all, id, &Finding::id) != all.end();
}

// The one finding that a spoiled machine must have: its status, and words of what was found and
// what to do.
inline void expect_finding(const Facts& facts, const std::string& id, Status status,
                           const std::string& found, const std::string& fix,
                           const Requirements& wanted = {}) {
  const Finding f = finding(judge(facts, wanted), id);
  EXPECT_EQ(name_of(f.status), name_of(status)) << id << ": " << f.found;
  EXPECT_NE(f.found.find(found), std::string::npos) << id << ": " << f.found;
  EXPECT_NE(f.fix.find(fix), std::string::npos) << id << ": " << f.fix;
}

}  // namespace octavo::verify

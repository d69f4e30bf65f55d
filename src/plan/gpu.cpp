#include "plan/gpu.h"

#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace octavo::plan {

// docs/reference/gpu-memory.md has the source of every figure; a test compares the two. Dense
// peaks, bandwidths and link rates are of the vendors' data sheets. Network: one 400 Gb/s adapter
// per Hopper or Blackwell GPU, 200 Gb/s per A100, what the published clusters have. Memory: the
// least that logs of programs on that GPU show.
std::span<const Gpu> gpus() {
  static constexpr Gpu kGpus[] = {
      {"a100", "A100 SXM 80GB", "ampere", 80, 312, 0, 79.1, 2.039, 300, 25, 8, 108},
      {"a100_40gb", "A100 SXM 40GB", "ampere", 80, 312, 0, 39.4, 1.555, 300, 25, 8, 108},
      {"h100", "H100 SXM 80GB", "hopper", 90, 989.4, 1978.9, 79.1, 3.35, 450, 50, 8, 132},
      {"h100_pcie", "H100 PCIe", "hopper", 90, 756, 1513, 79.1, 2.0, 64, 50, 8, 114},
      {"h100_nvl", "H100 NVL", "hopper", 90, 835, 1670, 93.0, 3.9, 300, 50, 2, 132},
      {"h100_500w", "H100 96GB HBM2e 500W", "hopper_500w", 90, 989, 1979, 95.0, 2.4, 450, 50, 8,
       132},
      {"h200", "H200 SXM", "hopper", 90, 989, 1979, 139.7, 4.8, 450, 50, 8, 132},
      {"h200_nvl", "H200 NVL", "hopper", 90, 835.5, 1670.5, 139.8, 4.8, 450, 50, 4, 132},
      {"gh200", "GH200 96GB", "hopper", 90, 989, 1979, 94.5, 4.0, 450, 50, 8, 132},
      {"b200", "B200", "blackwell", 100, 2250, 4500, 178.3, 7.67, 900, 50, 8, 148, 9000},
      {"b300", "B300", "blackwell_ultra", 103, 2250, 4500, 267.6, 8.0, 900, 100, 8, 148, 13500},
      {"gb200", "GB200", "blackwell", 100, 2500, 5000, 184.3, 8.0, 900, 50, 72, 152, 10000},
      {"gb300", "GB300", "blackwell_ultra", 103, 2500, 5000, 276.5, 8.0, 900, 100, 72, 152, 15000},
      {"l4", "L4", "ada_server", 89, 121, 242, 22.0, 0.3, 32, 12.5, 8, 58},
      {"l40s", "L40S", "ada_server", 89, 362.05, 733, 44.3, 0.864, 32, 25, 8, 142},
      {"rtx4090", "RTX 4090", "ada", 89, 165.2, 330.3, 23.5, 1.008, 32, 12.5, 8, 128},
      {"rtx4060ti", "RTX 4060 Ti 16GB", "ada", 89, 44.1, 88.2, 15.5, 0.288, 16, 12.5, 8, 34},
      {"rtx5090", "RTX 5090", "blackwell_rtx", 120, 209.5, 419, 31.3, 1.792, 64, 12.5, 8, 170},
      {"rtx5060ti", "RTX 5060 Ti", "blackwell_rtx", 120, 47.4, 94.8, 15.4, 0.448, 32, 12.5, 8, 36},
      {"rtxpro6000", "RTX PRO 6000", "blackwell_pro", 120, 503.8, 1007.6, 94.9, 1.792, 64, 50, 8,
       188},
  };
  return kGpus;
}

double total_bytes(const Gpu& gpu) {
  return gpu.memory_gib * 1024 * 1024 * 1024;
}

double usable_bytes(const Gpu& gpu) {
  constexpr double kReserved = 1024.0 * 1024 * 1024;
  return total_bytes(gpu) - kReserved;
}

const Gpu* find_gpu(std::string_view name) {
  for (const Gpu& gpu : gpus())
    if (gpu.name == name || gpu.title == name) return &gpu;
  return gpu_of_device(name);
}

const Gpu& wanted_gpu(std::string_view name) {
  const bool is_file = name.ends_with(".yaml") || name.ends_with(".yml");
  return is_file ? gpu_of_file(std::string(name)) : known_gpu(name);
}

const Gpu& known_gpu(std::string_view name) {
  if (const Gpu* gpu = find_gpu(name)) return *gpu;
  std::string small(name);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view other : {"mi2", "mi3", "radeon", "instinct", "gaudi", "tpu"})
    if (small.find(other) != small.npos)
      fail(ExitCode::kUsage, "plan", "gpu: wanted a GPU of NVIDIA, found \"", name.substr(0, 80),
           "\"; octavo knows no others: octavo names gpus lists them");
  std::string known;
  std::vector<std::string_view> names;
  for (const Gpu& gpu : gpus()) {
    known += (known.empty() ? "" : ", ") + std::string(gpu.name);
    names.push_back(gpu.name);
  }
  const std::string nearest = nearest_name(name, names);
  fail(ExitCode::kUsage, "plan", "gpu: wanted one of ", known, "; found \"", name.substr(0, 80),
       "\"; ",
       nearest.empty() ? "octavo names says what they are" : "did you mean " + nearest + "?");
}

}  // namespace octavo::plan

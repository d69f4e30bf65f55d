#include <gtest/gtest.h>

#include "expect_failure.h"
#include "plan/gpu.h"

namespace octavo::plan {
namespace {

// As drivers write them.
TEST(DeviceName, IsFoundInTheTable) {
  const std::pair<const char*, const char*> wanted[] = {
      {"NVIDIA H100 80GB HBM3", "h100"},
      {"NVIDIA H100 PCIe", "h100_pcie"},
      {"NVIDIA H100 NVL", "h100_nvl"},
      {"NVIDIA H200", "h200"},
      {"NVIDIA H200 NVL", "h200_nvl"},
      {"NVIDIA GH200 480GB", "gh200"},
      {"NVIDIA B200", "b200"},
      {"NVIDIA GB200", "gb200"},
      {"NVIDIA B300 SXM6 AC", "b300"},
      {"NVIDIA A100-SXM4-80GB", "a100"},
      {"NVIDIA A100-SXM4-40GB", "a100_40gb"},
      {"NVIDIA L4", "l4"},
      {"NVIDIA L40S", "l40s"},
      {"NVIDIA GeForce RTX 4090", "rtx4090"},
      {"NVIDIA GeForce RTX 4060 Ti", "rtx4060ti"},
      {"NVIDIA GeForce RTX 5090", "rtx5090"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"}};
  for (const auto& [device, name] : wanted) {
    const Gpu* gpu = gpu_of_device(device);
    ASSERT_NE(gpu, nullptr) << device;
    EXPECT_EQ(gpu->name, name) << device;
  }
}

// As people and vendors write them.
TEST(DeviceName, InAnySpelling) {
  const std::pair<const char*, const char*> wanted[] = {{"H100", "h100"},
                                                        {"h100-sxm", "h100"},
                                                        {"H100 SXM5", "h100"},
                                                        {"H100 80GB", "h100"},
                                                        {"h100 80 GB", "h100"},
                                                        {"h100sxm80gb", "h100"},
                                                        {"NVIDIA H100 80GB HBM3", "h100"},
                                                        {"H100-PCIe", "h100_pcie"},
                                                        {"h100_pcie", "h100_pcie"},
                                                        {"H100 NVL 94GB", "h100_nvl"},
                                                        {"H100 96GB HBM2e 500W", "h100_500w"},
                                                        {"A100", "a100"},
                                                        {"A100 80GB PCIe", "a100"},
                                                        {"a100-sxm-40gb", "a100_40gb"},
                                                        {"A100 40GB", "a100_40gb"},
                                                        {"H200 141GB", "h200"},
                                                        {"B200 192GB", "b200"},
                                                        {"GB200 NVL72", "gb200"},
                                                        {"RTX 4090", "rtx4090"},
                                                        {"4090", "rtx4090"},
                                                        {"GeForce RTX 4090 24GB", "rtx4090"},
                                                        {"rtx-5090", "rtx5090"},
                                                        {"RTX 4060 Ti 16GB", "rtx4060ti"},
                                                        {"RTX Pro 6000", "rtxpro6000"},
                                                        {"RTX 6000 Pro", "rtxpro6000"},
                                                        {"L40s", "l40s"}};
  for (const auto& [given, name] : wanted) {
    const Gpu* gpu = find_gpu(given);
    ASSERT_NE(gpu, nullptr) << given;
    EXPECT_EQ(gpu->name, name) << given;
  }
  for (const Gpu& gpu : gpus()) {
    EXPECT_EQ(find_gpu(gpu.name), &gpu) << gpu.name;
    EXPECT_EQ(find_gpu(gpu.title), &gpu) << gpu.title;
  }
  // Another amount of memory is another GPU.
  for (const char* given :
       {"H100 64GB", "RTX 4060 Ti 8GB", "A100 60GB", "h1000", "h100 0gb", "V100"})
    EXPECT_EQ(find_gpu(given), nullptr) << given;
  EXPECT_EQ(find_gpu(std::string(100'000, 'h')), nullptr);
}

TEST(DeviceName, UnknownOnesAreAnsweredWithTheNearest) {
  expect_failure(ExitCode::kUsage, "did you mean h100?", [] { wanted_gpu("h1000"); });
  expect_failure(ExitCode::kUsage, "wanted a GPU of NVIDIA", [] { wanted_gpu("AMD MI300X"); });
  expect_failure(ExitCode::kUsage, "octavo names", [] { wanted_gpu("something else entirely"); });
}

// No peak is better than another chip's.
TEST(DeviceName, OthersAreNot) {
  for (const char* device :
       {"", "NVIDIA L40", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "Tesla T4",
        "AMD Instinct MI300X", "NVIDIA GeForce RTX 4060"})
    EXPECT_EQ(gpu_of_device(device), nullptr) << device;
}

}  // namespace
}  // namespace octavo::plan

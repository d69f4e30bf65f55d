#include <gtest/gtest.h>

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

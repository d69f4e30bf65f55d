#include "plan/gpu.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace octavo::plan {
namespace {

// GiB that programs were told by CUDA on these GPUs: torchtitan's log lines, Unsloth's banner,
// out-of-memory messages, torch's device properties (docs/reference/gpu-memory.md has who).
constexpr struct {
  const char* name;
  double gib;
} kReported[] = {{"a100", 79.25},       {"a100_40gb", 39.49}, {"h100", 79.18},
                 {"h100_pcie", 79.11},  {"h100_nvl", 93.016}, {"h200", 139.83},
                 {"h200_nvl", 139.801}, {"b200", 178.35},     {"b300", 267.69},
                 {"gb200", 184.31},     {"gb300", 276.50},    {"l4", 22.16},
                 {"l40s", 44.39},       {"rtx4090", 23.65},   {"rtx4060ti", 15.57},
                 {"rtx5090", 31.37},    {"rtx5060ti", 15.45}, {"rtxpro6000", 94.97}};

TEST(Gpu, MemoryIsWhatDriversReportWithinOnePercent) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  for (const auto& it : kReported) {
    const Gpu& gpu = wanted_gpu(it.name);
    EXPECT_NEAR(total_bytes(gpu) / (it.gib * kGib), 1, 0.01) << it.name;
    EXPECT_LE(total_bytes(gpu), it.gib * kGib) << it.name;  // never more than there is
    EXPECT_DOUBLE_EQ(usable_bytes(gpu), total_bytes(gpu) - kGib) << it.name;
  }
}

// PCIe's generations by lanes, NVLink's halves, and how many GPUs a bridge or switch joins.
TEST(Gpu, LinksAreThoseOfTheDataSheets) {
  const double gen4_x8 = 16, gen4_x16 = 32, gen5_x8 = 32, gen5_x16 = 64;
  EXPECT_EQ(wanted_gpu("l4").link_gb_s, gen4_x16);
  EXPECT_EQ(wanted_gpu("l40s").link_gb_s, gen4_x16);
  EXPECT_EQ(wanted_gpu("rtx4090").link_gb_s, gen4_x16);
  EXPECT_EQ(wanted_gpu("rtx4060ti").link_gb_s, gen4_x8);
  EXPECT_EQ(wanted_gpu("rtx5060ti").link_gb_s, gen5_x8);
  EXPECT_EQ(wanted_gpu("rtx5090").link_gb_s, gen5_x16);
  EXPECT_EQ(wanted_gpu("rtxpro6000").link_gb_s, gen5_x16);
  EXPECT_EQ(wanted_gpu("h100_pcie").link_gb_s, gen5_x16);
  EXPECT_EQ(wanted_gpu("h100_nvl").gpus_per_node, 2);
  EXPECT_EQ(wanted_gpu("h200_nvl").gpus_per_node, 4);
  EXPECT_EQ(wanted_gpu("gb200").gpus_per_node, 72);
}

// "| H100 SXM 80GB (`h100`) | 989.4 | …": every figure of the code is on the page, with a source.
TEST(Gpu, ThePageHasEveryFigureAndItsSource) {
  const fs::path page = fs::path(OCTAVO_SOURCE_DIR) / "docs/reference/gpu-memory.md";
  const std::string text = read_file(page, 1 << 20);
  for (const Gpu& gpu : gpus()) {
    std::ostringstream row;
    row << "| " << gpu.title << " (`" << gpu.name << "`) | " << gpu.bf16_tflops << " | ";
    if (gpu.fp8_tflops > 0)
      row << gpu.fp8_tflops;
    else
      row << "none";
    row << " | " << gpu.memory_tb_s << " | " << gpu.link_gb_s << " | " << gpu.gpus_per_node << " | "
        << gpu.network_gb_s << " | " << gpu.multiprocessors << " | ";
    const size_t at = text.find(row.str());
    ASSERT_NE(at, std::string::npos) << "wanted " << row.str();
    EXPECT_GT(text.find('\n', at) - at, row.str().size() + 10) << gpu.name << " has no source";
    std::ostringstream fp4;
    fp4 << gpu.title << " " << gpu.fp4_tflops;
    EXPECT_TRUE(gpu.fp4_tflops == 0 || text.find(fp4.str()) != text.npos) << fp4.str();
  }
}

}  // namespace
}  // namespace octavo::plan

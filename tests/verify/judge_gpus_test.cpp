#include "verify/machine.h"

namespace octavo::verify {
namespace {

TEST(JudgeGpus, AHealthyMachineHasNothingToFix) {
  const auto all = judge(healthy(), {});
  for (const Finding& f : all) {
    EXPECT_TRUE(f.status == Status::kOk || f.status == Status::kNotChecked)
        << f.id << " " << name_of(f.status) << ": " << f.found;
  }
  EXPECT_EQ(count(all).fail, 0);
  EXPECT_NE(finding(all, "gpu 0").found.find("delayed, current, rowwise, blockwise"),
            std::string::npos);
}

TEST(JudgeGpus, EveryFailureAndWarningHasAFix) {
  for (const int spoil : {0, 1, 2, 3, 4, 5}) {
    Facts f = spoil == 0 ? without_gpu() : healthy();
    if (spoil == 1) f.driver.cuda = {12, 4, 0};
    if (spoil == 2) f.gpus.gpus = {gpu_of(8, 0)};
    if (spoil == 3) f.libraries = {};
    if (spoil == 4) f.environment = {{"NVTE_FP8_ALLREDUCE", "1"}, {"NCCL_SOCKET_IFNAME", "enp9"}};
    if (spoil == 5) f.disk = {"checkpoints", "checkpoints", 0, 0, "not writable"};
    for (const Finding& found : judge(f, {.require_gpu = true}))
      if (found.status == Status::kFail || found.status == Status::kWarn) {
        EXPECT_FALSE(found.fix.empty()) << found.id;
        EXPECT_FALSE(found.found.empty()) << found.id;
      }
  }
}

TEST(JudgeGpus, NoGpuIsANoteUnlessOneIsRequired) {
  expect_finding(without_gpu(), "devices", Status::kNote, "no NVIDIA driver", "--gpus all");
  expect_finding(without_gpu(), "devices", Status::kFail, "no NVIDIA driver", "--gpus all",
                 {.require_gpu = true});
  EXPECT_EQ(count(judge(without_gpu(), {})).fail, 0);
}

TEST(JudgeGpus, ACardWithoutADriverFails) {
  Facts f = without_gpu();
  f.driver.nvidia_cards = 2;
  expect_finding(f, "devices", Status::kFail, "2 NVIDIA card(s) on the PCI bus", "nvidia-smi");
}

TEST(JudgeGpus, DriversThatDoNotStart) {
  struct Case {
    int code;
    const char* fix;
  };
  for (const Case c : {Case{100, "CUDA_VISIBLE_DEVICES"}, Case{802, "nvidia-fabricmanager"},
                       Case{803, "reboot"}, Case{999, "dmesg"}}) {
    Facts f = healthy();
    f.gpus.gpus.clear();
    f.gpus.reason = "the NVIDIA driver does not start: cuInit returned " + std::to_string(c.code);
    expect_finding(f, "devices", Status::kFail, std::to_string(c.code), c.fix);
  }
}

TEST(JudgeGpus, OldDriver) {
  Facts f = healthy();
  f.driver.version = "550.54.15";
  f.driver.cuda = {12, 4, 0};
  expect_finding(f, "driver", Status::kFail, "12.4", "update the driver to 580");
  // The runtime then shows no device: the same fix, not another riddle.
  f.gpus.gpus.clear();
  f.gpus.reason = "the NVIDIA driver shows no device";
  expect_finding(f, "driver", Status::kFail, "550.54.15", "cuda-compat-13-2");
  expect_finding(f, "devices", Status::kFail, "shows no device", "update the driver to 580");
}

TEST(JudgeGpus, DriverOfAnOlderMinorVersionIsEnough) {
  Facts f = healthy();
  f.driver.cuda = {13, 0, 0};
  expect_finding(f, "driver", Status::kNote, "minor version compatibility", "");
}

TEST(JudgeGpus, CapabilityWithoutFp8) {
  Facts f = healthy();
  f.gpus.gpus = {gpu_of(8, 0, "NVIDIA A100-SXM4-80GB")};
  expect_finding(f, "gpu 0", Status::kFail, "no FP8 matrix units", "fp8_execution: rehearse");
  expect_finding(f, "gpu 0", Status::kFail, "compute capability 8.0", "mixed_precision: bf16");
  // Who asks for BF16 is served.
  expect_finding(f, "gpu 0", Status::kNote, "A100", "", {.fp8 = false});
  f.gpus.gpus = {gpu_of(7, 5, "Tesla T4")};
  expect_finding(f, "gpu 0", Status::kFail, "7.5", "Ampere", {.fp8 = false});
}

TEST(JudgeGpus, WhatTheSettingsWant) {
  const auto wanted = [](const char* yaml) {
    return requirements_of(config::parse_text(yaml, "test.yaml", config::kVerifyArguments));
  };
  EXPECT_TRUE(wanted("").fp8);
  EXPECT_FALSE(wanted("").require_gpu);
  EXPECT_FALSE(wanted("mixed_precision: bf16").fp8);
  EXPECT_TRUE(wanted("mixed_precision: bf16\nuse_fp8: true").fp8);
  EXPECT_FALSE(wanted("use_fp8: true\nfp8_execution: rehearse").fp8);
  EXPECT_TRUE(wanted("require_gpu: true").require_gpu);
  EXPECT_TRUE(wanted("device: cuda").require_gpu);
  EXPECT_TRUE(wanted("fp8_execution: native").require_gpu);
  EXPECT_TRUE(wanted("use_te: true").te);
  EXPECT_EQ(config::name_of(wanted("fp8_scenario: mxfp8").recipe), "mxfp8");
}

TEST(JudgeGpus, RecipesOfEachGeneration) {
  struct Case {
    int major, minor;
    const char* recipes;
  };
  for (const Case c : {Case{8, 9, "FP8 recipes delayed, current"}, Case{9, 0, "rowwise, blockwise"},
                       Case{10, 0, "blockwise, mxfp8"}, Case{12, 0, "delayed, current, rowwise"}}) {
    Facts f = healthy();
    f.gpus.gpus = {gpu_of(c.major, c.minor)};
    expect_finding(f, "gpu 0", Status::kOk, c.recipes, "");
  }
  Facts f = healthy();
  expect_finding(f, "gpu 0", Status::kFail, "", "delayed, current, rowwise, blockwise",
                 {.recipe = fp8::recipe_with(fp8::Granularity::kBlock32)});
}

TEST(JudgeGpus, SeveralGpus) {
  Facts f = healthy();
  f.gpus.gpus = {gpu_of(9, 0), gpu_of(8, 9, "L40S")};
  f.nvml.gpus.resize(4);
  f.nvml.links = {{0, 1, false, "across processors"}, {0, 2, true, "on one board"}};
  expect_finding(f, "same kind", Status::kWarn, "different", "CUDA_VISIBLE_DEVICES");
  expect_finding(f, "visible", Status::kNote, "2 of the machine's 4", "");
  expect_finding(f, "links", Status::kWarn, "1 of 2 pairs by NVLink; GPUs 0 and 1 across",
                 "gradient_accumulation_steps");
  f.nvml.links = {{0, 1, true, "on one board"}};
  expect_finding(f, "links", Status::kOk, "1 of 1", "");
  f.nvml.problem = "NVML does not start";
  expect_finding(f, "links", Status::kNotChecked, "NVML does not start", "");
}

TEST(JudgeGpus, StateOfAGpu) {
  Facts f = healthy();
  f.nvml.gpus[0].memory_used = uint64_t{30} << 30;
  f.nvml.gpus[0].pcie_width = 4;
  expect_finding(f, "memory in use, gpu 0", Status::kWarn, "taken already", "nvidia-smi");
  expect_finding(f, "PCIe, gpu 0", Status::kWarn, "4 lanes", "seat the card");
}

}  // namespace
}  // namespace octavo::verify

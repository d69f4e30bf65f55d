// verify --for: what is installed, whether it fits together, the GPU.

#include "verify/judge_python.h"

#include <gtest/gtest.h>

#include "expect_failure.h"
#include "verify/python_machine.h"
#include "verify/report.h"

namespace octavo::verify {
namespace {

void remove(PythonFacts& facts, const std::string& name) {
  std::erase_if(facts.packages, [&](const auto& p) { return p.name == name; });
}

Finding judged(const PythonFacts& facts, const std::string& id) {
  return finding_of(judge_python(facts), id);
}

TEST(JudgePython, AGoodEnvironmentPasses) {
  for (const Trainer trainer : kTrainers) {
    const auto findings = judge_python(good_environment(trainer));
    EXPECT_EQ(count(findings).fail + count(findings).warn, 0) << name_of(trainer);
    EXPECT_EQ(exit_code(findings), 0);
    for (const Finding& f : findings)
      if (f.status == Status::kNotChecked)
        EXPECT_EQ(f.id, "Transformer Engine and torch") << f.found;
  }
}

TEST(JudgePython, Trainers) {
  EXPECT_EQ(trainer_named("megatron"), Trainer::kMegatron);
  expect_failure(ExitCode::kUsage, "did you mean torchao?", [] { trainer_named("torcha"); });
}

TEST(JudgePython, WhatATrainerNeedsMustBeThere) {
  const std::tuple<Trainer, const char*, const char*> kCases[] = {
      {Trainer::kTe, "transformer-engine", "Transformer Engine"},
      {Trainer::kTe, "torch", "torch"},
      {Trainer::kTorchao, "torchao", "torchao"},
      {Trainer::kMegatron, "megatron-core", "Megatron Core"},
      {Trainer::kMegatron, "transformer-engine", "Transformer Engine"}};
  for (const auto& [trainer, package, id] : kCases) {
    PythonFacts facts = good_environment(trainer);
    remove(facts, package);
    EXPECT_EQ(judged(facts, id).status, Status::kFail) << package;
    EXPECT_NE(judged(facts, id).fix.find("install"), std::string::npos) << package;
  }
}

TEST(JudgePython, LibrariesWithoutAPackageAreNotPassed) {
  PythonFacts facts = good_environment(Trainer::kTe);
  remove(facts, "nvidia-cudnn-cu13");
  EXPECT_EQ(judged(facts, "cuDNN").status, Status::kNotChecked);
  facts.variables["CUDNN_VERSION"] = "9.24.0.43";
  EXPECT_EQ(judged(facts, "cuDNN").status, Status::kOk);
  EXPECT_NE(judged(facts, "cuDNN").found.find("CUDNN_VERSION"), std::string::npos);
}

TEST(JudgePython, AVersionThatCannotBeReadIsSaid) {
  PythonFacts facts = good_environment(Trainer::kTorchao);
  install(facts, "torchao", "nightly");
  facts.packages.back().problem = "its version 'nightly' is none that PEP 440 knows";
  EXPECT_EQ(judged(facts, "torchao").status, Status::kNotChecked);
  EXPECT_NE(judged(facts, "torchao").found.find("nightly"), std::string::npos);
}

TEST(JudgePython, DamageIsSeen) {
  PythonFacts facts = good_environment(Trainer::kTe);
  facts.again = {"/env/lib/python3.12/site-packages/torch-2.8.0.dist-info"};
  facts.missing_files = {
      {"transformer-engine-cu13", "transformer_engine/libtransformer_engine.so"}};
  EXPECT_EQ(judged(facts, "installed twice").status, Status::kWarn);
  EXPECT_EQ(judged(facts, "transformer-engine-cu13, files").status, Status::kFail);
  // Of many the first are listed, and the others counted.
  for (int i = 0; i < 7; ++i) facts.missing_files.emplace_back("p" + std::to_string(i), "f.so");
  EXPECT_EQ(judged(facts, "other packages, files").found, "… and 3 more");
}

TEST(JudgePython, RequirementsOfMetadata) {
  PythonFacts facts = good_environment(Trainer::kTorchao);
  install(facts, "nvidia-cudnn-cu13", "9.20.0.48");
  Finding line = judged(facts, "torch and nvidia-cudnn-cu13");
  EXPECT_EQ(line.status, Status::kWarn);
  EXPECT_EQ(line.found, "9.20.0.48");
  EXPECT_NE(line.wanted.find("nvidia-cudnn-cu13==9.24.0.43"), std::string::npos) << line.wanted;
  remove(facts, "triton");
  EXPECT_EQ(judged(facts, "torch and triton").found, "not installed");
  EXPECT_EQ(judged(facts, "torch, requirements").found,
            "0 hold, 1 are for other machines or optional parts");
  install(facts, "torch", "2.14.1+cu130",
          {"a @ https://host/a.whl", "numpy; platform_release>'6'"});
  line = judged(facts, "torch, requirements");
  EXPECT_EQ(line.status, Status::kNotChecked);
  EXPECT_NE(line.found.find("2 could not be judged"), std::string::npos) << line.found;
}

TEST(JudgePython, PythonsOwnVersion) {
  PythonFacts facts = good_environment(Trainer::kMegatron);
  for (auto& p : facts.packages)
    if (p.name == "megatron-core") p.metadata.requires_python = ">=3.12";
  EXPECT_EQ(judged(facts, "megatron-core and Python").status, Status::kOk);
  facts.environment.python_version = "3.11.2";
  EXPECT_EQ(judged(facts, "megatron-core and Python").status, Status::kFail);
  facts.environment.python_version = "";
  EXPECT_EQ(judged(facts, "megatron-core and Python").status, Status::kNotChecked);
}

TEST(JudgePython, OneCudaForAll) {
  PythonFacts facts = good_environment(Trainer::kTe);
  remove(facts, "transformer-engine-cu13");
  install(facts, "transformer-engine-cu12", "2.18.0");
  Finding line = judged(facts, "Transformer Engine and CUDA");
  EXPECT_EQ(line.status, Status::kFail);
  EXPECT_NE(line.fix.find("issue 2040"), std::string::npos);
  facts = good_environment(Trainer::kTe);
  install(facts, "torch", "2.14.1+cpu");
  EXPECT_EQ(judged(facts, "torch and CUDA").status, Status::kFail);
  install(facts, "torch", "2.14.1");
  EXPECT_EQ(judged(facts, "torch and CUDA").status, Status::kNotChecked);
  install(facts, "torch", "2.9.1", {"nvidia-nccl-cu12==2.27.5"});
  EXPECT_EQ(cuda_major_of_torch(facts), 12u);
  EXPECT_EQ(judged(facts, "CUDA runtime and torch").status, Status::kWarn);
}

TEST(JudgePython, PackagesOfTransformerEngine) {
  PythonFacts facts = good_environment(Trainer::kTe);
  install(facts, "transformer-engine-torch", "2.17.0");
  EXPECT_EQ(judged(facts, "Transformer Engine's packages").status, Status::kFail);
  facts = good_environment(Trainer::kTe);
  remove(facts, "transformer-engine-cu13");
  EXPECT_EQ(judged(facts, "Transformer Engine's packages").status, Status::kFail);
  facts = good_environment(Trainer::kTe);
  remove(facts, "transformer-engine-torch");
  EXPECT_EQ(finding_of(judge_python_fit(facts), "Transformer Engine's PyTorch part").status,
            Status::kFail);
}

TEST(JudgePython, NamesThatNobodyReads) {
  PythonFacts facts = good_environment(Trainer::kTe);
  facts.variables["NVTE_FLASH_ATN"] = "0";
  facts.variables["NVTE_FUSED_ATTN"] = "1";
  EXPECT_EQ(judged(facts, "NVTE_FLASH_ATN").status, Status::kWarn);
  EXPECT_NE(judged(facts, "NVTE_FLASH_ATN").fix.find("NVTE_FLASH_ATTN"), std::string::npos);
  EXPECT_EQ(judged(facts, "NVTE_FUSED_ATTN").id, "");
}

TEST(JudgePython, DriverAndGpu) {
  PythonFacts facts = good_environment(Trainer::kTe);
  facts.driver.version = "570.86.10";
  EXPECT_EQ(judged(facts, "driver").status, Status::kFail) << "CUDA 13 takes 580";
  facts.nvml.gpus[0].major = 8;
  EXPECT_EQ(judged(facts, "gpu 0").status, Status::kFail);
  facts.nvml.gpus[0].minor = 9;
  EXPECT_EQ(judged(facts, "gpu 0").status, Status::kOk);
  facts.nvml.gpus[0].major = facts.nvml.gpus[0].minor = 0;
  EXPECT_EQ(judged(facts, "gpu 0").status, Status::kNotChecked);
  facts.nvml.gpus.clear();
  facts.driver.version.clear();
  EXPECT_EQ(judged(facts, "compute capability").status, Status::kNotChecked);
  EXPECT_EQ(judged(facts, "driver").status, Status::kNotChecked);
  facts.require_gpu = true;
  EXPECT_EQ(judged(facts, "compute capability").status, Status::kFail);
  EXPECT_EQ(judged(facts, "driver").status, Status::kFail);
}

}  // namespace
}  // namespace octavo::verify

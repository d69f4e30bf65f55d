#pragma once
// Facts of Python environments that are not here.

#include <algorithm>
#include <string>

#include "verify/python_facts.h"

namespace octavo::verify {

inline void install(PythonFacts& facts, const std::string& name, const std::string& version,
                    std::vector<std::string> requirements = {}) {
  std::erase_if(facts.packages, [&](const auto& p) { return p.name == name; });
  python_env::Package package;
  package.name = name;
  package.metadata = {name, version, "", std::move(requirements)};
  facts.packages.push_back(std::move(package));
}

// One in which everything fits, with an H100.
inline PythonFacts good_environment(Trainer trainer) {
  PythonFacts facts;
  facts.trainer = trainer;
  facts.environment.root = "/env";
  facts.environment.python_version = "3.12.3";
  facts.environment.site_packages = {"/env/lib/python3.12/site-packages"};
  facts.machine = "x86_64";
  facts.driver.version = "580.65.06";
  facts.nvml.gpus = {{.name = "NVIDIA H100 80GB HBM3", .major = 9, .minor = 0}};
  facts.variables["CUDA_DEVICE_MAX_CONNECTIONS"] = trainer == Trainer::kMegatron ? "1" : "8";
  facts.variables["NVTE_CPU_OFFLOAD_V1"] = "1";
  install(facts, "torch", "2.14.1+cu130",
          {"nvidia-cudnn-cu13==9.24.0.43; platform_system == 'Linux'", "triton==3.9.0",
           "opt-einsum>=3; extra == 'opt'"});
  install(facts, "triton", "3.9.0");
  install(facts, "nvidia-cuda-runtime", "13.0.96");
  install(facts, "nvidia-cudnn-cu13", "9.24.0.43");
  install(facts, "nvidia-cublas", "13.2.1.1");
  install(facts, "nvidia-nccl-cu13", "2.31.2");
  install(facts, "numpy", "2.4.0");
  if (trainer == Trainer::kTorchao) install(facts, "torchao", "0.18.0");
  if (trainer == Trainer::kMegatron) install(facts, "megatron-core", "0.18.0");
  if (trainer != Trainer::kTorchao)
    for (const char* name :
         {"transformer-engine", "transformer-engine-torch", "transformer-engine-cu13"})
      install(facts, name, "2.18.0");
  return facts;
}

inline Finding finding_of(const std::vector<Finding>& findings, const std::string& id) {
  const auto it = std::ranges::find(findings, id, &Finding::id);
  return it == findings.end() ? Finding{} : *it;
}

}  // namespace octavo::verify

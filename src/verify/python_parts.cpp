#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "python_env/requirement.h"
#include "verify/python_facts.h"

namespace octavo::verify {
namespace {

constexpr std::string_view kTrainerNames[] = {"te", "torchao", "megatron"};

// "cu128" of 2.9.1+cu128 is CUDA 12.8.
std::optional<python_env::Version> cuda_in_local(const python_env::Version& torch) {
  for (const std::string& part : torch.local) {
    if (!part.starts_with("cu") || part.size() < 5) continue;
    const std::string digits = part.substr(2);
    if (digits.find_first_not_of("0123456789") != digits.npos) continue;
    return python_env::parse_version(digits.substr(0, digits.size() - 1) + "." + digits.back());
  }
  return std::nullopt;
}

// 12 of "nvidia-cudnn-cu12".
uint64_t cuda_in_name(std::string_view name) {
  const size_t at = name.rfind("-cu");
  uint64_t major = 0;
  if (at == name.npos) return 0;
  const std::string_view digits = name.substr(at + 3);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), major);
  return error == std::errc{} && end == digits.data() + digits.size() ? major : 0;
}

// The packages of a part that are there; of several the one of torch's CUDA first.
const python_env::Package* package_of(const PythonFacts& facts, const Part& part) {
  const python_env::Package* first = nullptr;
  const uint64_t major = part.id == "torch" ? 0 : cuda_major_of_torch(facts);
  for (const std::string_view name : part.packages) {
    const python_env::Package* package = find_package(facts, name);
    if (package == nullptr) continue;
    if (major != 0 && cuda_in_name(name) == major) return package;
    if (first == nullptr) first = package;
  }
  return first;
}

}  // namespace

std::string_view name_of(Trainer trainer) {
  return kTrainerNames[static_cast<size_t>(trainer)];
}

Trainer trainer_named(const std::string& name) {
  for (const Trainer trainer : kTrainers)
    if (name_of(trainer) == name) return trainer;
  const std::string nearest = nearest_name(name, kTrainerNames);
  fail(ExitCode::kUsage, "verify", "wanted te, torchao or megatron behind --for, found '", name,
       "'; ",
       nearest.empty() ? "take one of them; torchtitan trains in FP8 by torchao"
                       : "did you mean " + nearest + "?");
}

const std::vector<Part>& parts() {
  static const std::vector<Part> kParts = {
      {"torch", "torch", {"torch"}},
      {"te", "Transformer Engine", {"transformer-engine"}},
      {"te-torch", "Transformer Engine's PyTorch part", {"transformer-engine-torch"}},
      {"te-core",
       "Transformer Engine's library",
       {"transformer-engine-cu13", "transformer-engine-cu12"}},
      {"te-cu13", "Transformer Engine's library for CUDA 13", {"transformer-engine-cu13"}},
      {"torchao", "torchao", {"torchao"}},
      {"megatron", "Megatron Core", {"megatron-core"}},
      {"flash-attn", "FlashAttention", {"flash-attn"}},
      {"triton", "Triton", {"triton", "pytorch-triton"}},
      {"numpy", "NumPy", {"numpy"}},
      {"cuda",
       "CUDA runtime",
       {"nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12",
        "cuda-cudart"},
       "CUDA_VERSION",
       true},
      {"cudnn",
       "cuDNN",
       {"nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "cudnn"},
       "CUDNN_VERSION",
       true},
      {"cublas",
       "cuBLAS",
       {"nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12", "libcublas"},
       "CUBLAS_VERSION",
       true},
      {"nccl", "NCCL", {"nvidia-nccl-cu13", "nvidia-nccl-cu12", "nccl"}, "NCCL_VERSION", true},
  };
  return kParts;
}

const Part& part_named(std::string_view id) {
  const auto it = std::ranges::find(parts(), id, &Part::id);
  OCTAVO_ASSERT(it != parts().end());
  return *it;
}

bool concerns(const Part& part, Trainer trainer) {
  if (trainer != Trainer::kTorchao)
    return part.id != "torchao" && (part.id != "megatron" || trainer == Trainer::kMegatron);
  return !part.id.starts_with("te") && part.id != "megatron" && part.id != "flash-attn";
}

const python_env::Package* find_package(const PythonFacts& facts, std::string_view name) {
  const auto it = std::ranges::find(facts.packages, name, &python_env::Package::name);
  return it == facts.packages.end() ? nullptr : &*it;
}

uint64_t cuda_major_of_torch(const PythonFacts& facts) {
  const python_env::Package* torch = find_package(facts, "torch");
  if (torch == nullptr) return 0;
  const auto version = torch->version();
  if (const auto cuda = version ? cuda_in_local(*version) : std::nullopt) return cuda->number(0);
  for (const std::string& line : torch->metadata.requirements)
    if (const auto wanted = python_env::parse_requirement(line))
      if (wanted->name.starts_with("nvidia-"))
        if (const uint64_t major = cuda_in_name(wanted->name); major != 0) return major;
  return 0;
}

PartVersion version_of(const PythonFacts& facts, std::string_view id) {
  const Part& part = part_named(id);
  PartVersion out;
  if (const python_env::Package* package = package_of(facts, part)) {
    out = {true, package->version(), printable(package->metadata.version, 60), package->name,
           package->problem};
    return out;
  }
  const auto variable = facts.variables.find(std::string(part.variable));
  if (!part.variable.empty() && variable != facts.variables.end()) {
    // "2.27.3-1+cuda12.9": what stands behind the dash is of the system's package.
    const std::string text = variable->second.substr(0, variable->second.find('-'));
    out = {true, python_env::parse_version(text), printable(text, 60), std::string(part.variable),
           ""};
    if (!out.version) out.problem = str(part.variable, " is no version");
    return out;
  }
  const python_env::Package* torch = id == "cuda" ? find_package(facts, "torch") : nullptr;
  const auto torch_version = torch != nullptr ? torch->version() : std::nullopt;
  if (const auto cuda = torch_version ? cuda_in_local(*torch_version) : std::nullopt)
    out = {true, cuda, cuda->text(), "torch's version", ""};
  return out;
}

int capability_of(const PythonFacts& facts) {
  if (facts.nvml.gpus.empty()) return 0;
  return 10 * facts.nvml.gpus.front().major + facts.nvml.gpus.front().minor;
}

}  // namespace octavo::verify

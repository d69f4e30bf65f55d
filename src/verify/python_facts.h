#pragma once
// `octavo verify --for te|torchao|megatron`: what a Python environment is, gathered once from its
// packages' metadata, so that judging it (judge_python.h) is a pure function. Nothing is imported.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python_env/environment.h"
#include "verify/driver.h"

namespace octavo::verify {

// What trains in the environment.
enum class Trainer : uint8_t { kTe, kTorchao, kMegatron };
inline constexpr Trainer kTrainers[] = {Trainer::kTe, Trainer::kTorchao, Trainer::kMegatron};
std::string_view name_of(Trainer trainer);       // "te"
Trainer trainer_named(const std::string& name);  // fails (kUsage) on any other

struct PythonFacts {
  Trainer trainer = Trainer::kTe;
  bool require_gpu = false;
  python_env::Environment environment;
  std::vector<python_env::Package> packages;  // of parts() and of what those require
  std::vector<fs::path> again;                // a second folder of a package's metadata
  std::vector<std::pair<std::string, std::string>> missing_files;  // package, library or problem
  std::map<std::string, std::string> variables;                    // that are set and looked at
  Driver driver;
  Nvml nvml;
  std::string machine;  // "x86_64"
};

// A part of the environment under one name, whichever package brings it.
struct Part {
  std::string_view id, shown;  // "cudnn", "cuDNN"
  std::vector<std::string_view> packages;
  std::string_view variable = {};  // of NVIDIA's containers, whose libraries have no package
  // A library may also come from the system: without a package its version is not known.
  bool is_library = false;
};
const std::vector<Part>& parts();
const Part& part_named(std::string_view id);
// Whether a trainer has to do with a part: torchao not with Transformer Engine, nor the other way.
bool concerns(const Part& part, Trainer trainer);

// The version of a part, and where it was read.
struct PartVersion {
  bool is_there = false;  // some package, or a container's variable
  std::optional<python_env::Version> version;
  std::string text;    // "9.10.2.21", for a terminal
  std::string source;  // "nvidia-cudnn-cu12", "CUDNN_VERSION"
  std::string problem;
};
PartVersion version_of(const PythonFacts& facts, std::string_view part);
const python_env::Package* find_package(const PythonFacts& facts, std::string_view name);

// The CUDA that torch was built for: 12, 13; 0 when its metadata do not tell.
uint64_t cuda_major_of_torch(const PythonFacts& facts);
// 10 * major + minor of the first GPU; 0 when no driver tells.
int capability_of(const PythonFacts& facts);

// Looks: `python` is --python. Fails when there is no environment.
PythonFacts gather_python(Trainer trainer, const std::string& python);

}  // namespace octavo::verify

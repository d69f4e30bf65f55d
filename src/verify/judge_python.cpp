// What is installed, the GPU, and the whole in its order.

#include "verify/judge_python.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "verify/known_bad.h"
#include "verify/nvte_names.h"

namespace octavo::verify {
namespace {

constexpr size_t kMostShown = 5;

// What a trainer cannot do without, and how it is installed.
struct Needed {
  Trainer trainer;
  std::string_view part, install;
};
constexpr Needed kNeeded[] = {
    {Trainer::kTe, "torch", "install a torch for CUDA (pytorch.org, Get started)"},
    {Trainer::kTe, "te", "pip install --no-build-isolation \"transformer-engine[pytorch]\""},
    {Trainer::kTorchao, "torch", "install a torch for CUDA (pytorch.org, Get started)"},
    {Trainer::kTorchao, "torchao", "pip install torchao"},
    {Trainer::kMegatron, "torch", "install a torch for CUDA (pytorch.org, Get started)"},
    {Trainer::kMegatron, "megatron",
     "pip install megatron-core; a clone that is only on PYTHONPATH has no metadata: pip install "
     "-e it, or its version is not known"},
    {Trainer::kMegatron, "te",
     "pip install --no-build-isolation \"transformer-engine[pytorch]\"; Megatron has FP8 by it "
     "alone"},
};

Finding python_line(std::string id, Status status, std::string found, std::string fix = {}) {
  return {Section::kPython, std::move(id), status, "", std::move(found), std::move(fix)};
}

const Needed* needed_by(const PythonFacts& facts, std::string_view part) {
  const auto* const it = std::ranges::find_if(
      kNeeded, [&](const Needed& n) { return n.trainer == facts.trainer && n.part == part; });
  return it == std::end(kNeeded) ? nullptr : it;
}

void judge_part(const PythonFacts& facts, const Part& part, std::vector<Finding>& out) {
  const PartVersion found = version_of(facts, part.id);
  const std::string id(part.shown);
  const Needed* needed = needed_by(facts, part.id);
  if (!found.is_there && needed != nullptr) {
    Finding line = python_line(id, Status::kFail, "not installed", std::string(needed->install));
    line.wanted = str("the package ", part.packages.front());
    out.push_back(std::move(line));
  } else if (!found.is_there && part.is_library) {
    out.push_back(python_line(
        id, Status::kNotChecked,
        str("no package brings it", part.variable.empty() ? "" : str(" and ", part.variable),
            " is not set: it comes from the system or not at all, and its version is not known")));
  } else if (found.is_there && !found.version) {
    out.push_back(python_line(id, Status::kNotChecked, str(found.source, ": ", found.problem),
                              str("install ", found.source, " again")));
  } else if (found.is_there) {
    out.push_back(python_line(id, Status::kOk,
                              str(found.version->text(), " (", printable(found.source, 80), ")")));
  }
}

Finding judge_interpreter(const PythonFacts& facts) {
  const python_env::Environment& env = facts.environment;
  std::vector<std::string> folders;
  for (const fs::path& folder : env.site_packages) folders.push_back(folder.string());
  const std::string where =
      str(printable(env.root.string(), 200), ", found by ", printable(env.found_by, 200),
          "; packages in ", printable(join(folders, ", "), 400));
  if (env.python_version.empty())
    return python_line("Python", Status::kNotChecked, "version not known: " + where);
  return python_line("Python", Status::kOk, str(printable(env.python_version, 40), " in ", where));
}

// The first digits of "580.65.06".
int driver_major(const std::string& version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

Finding gpu_line(std::string id, Status status, std::string wanted, std::string found,
                 std::string fix = {}) {
  return {Section::kGpu,     std::move(id),    status,
          std::move(wanted), std::move(found), std::move(fix)};
}

Finding judge_driver_for(const PythonFacts& facts) {
  const uint64_t cuda = cuda_major_of_torch(facts);
  const std::string& version = facts.driver.version;
  if (version.empty())
    return gpu_line("driver", facts.require_gpu ? Status::kFail : Status::kNotChecked,
                    "an NVIDIA driver", "no NVIDIA driver on this machine",
                    facts.require_gpu ? "install it, or start the container with its GPUs" : "");
  if (cuda == 0)
    return gpu_line("driver", Status::kNotChecked, "",
                    str(version, "; torch's metadata do not tell its CUDA"));
  const int least = cuda >= 13 ? 580 : 525;
  const bool fits = driver_major(version) >= least;
  return gpu_line("driver", fits ? Status::kOk : Status::kFail,
                  str("driver ", least, " or newer for CUDA ", cuda), version,
                  fits ? "" : str("update the driver, or install a torch for an older CUDA"));
}

}  // namespace

std::vector<Finding> judge_python_packages(const PythonFacts& facts) {
  std::vector<Finding> out = {judge_interpreter(facts)};
  for (const std::string& note : facts.environment.notes)
    out.push_back(python_line("search", Status::kNote, printable(note, 300)));
  for (const Part& part : parts())
    if (concerns(part, facts.trainer) && part.id != "te-cu13") judge_part(facts, part, out);
  const auto say_more = [&](const char* id, Status status, size_t all) {
    if (all > kMostShown)
      out.push_back(python_line(id, status, str("… and ", all - kMostShown, " more"),
                                "the same as for those above"));
  };
  size_t shown = 0;
  for (const fs::path& folder : facts.again)
    if (shown++ < kMostShown)
      out.push_back(python_line(
          "installed twice", Status::kWarn,
          str(printable(folder.string(), 300), ": a package of the same name comes before it"),
          "pip uninstall the package until none is left, then install it once"));
  say_more("installed twice", Status::kWarn, facts.again.size());
  shown = 0;
  for (const auto& [package, file] : facts.missing_files)
    if (shown++ < kMostShown)
      out.push_back(python_line(str(package, ", files"), Status::kFail,
                                str("its RECORD lists ", file, ", which is not there"),
                                str("pip install --force-reinstall --no-deps ", package)));
  say_more("other packages, files", Status::kFail, facts.missing_files.size());
  return out;
}

std::vector<Finding> judge_nvte_names(const PythonFacts& facts) {
  std::vector<Finding> out;
  if (facts.trainer == Trainer::kTorchao) return out;
  std::vector<std::string_view> known(std::begin(kNvteNames), std::end(kNvteNames));
  known.insert(known.end(), std::begin(kOtherNvteNames), std::end(kOtherNvteNames));
  for (const auto& [name, value] : facts.variables) {
    if (!name.starts_with("NVTE_") || std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    out.push_back(
        {Section::kEnvironment, printable(name, 60), Status::kWarn,
         "a name that Transformer Engine reads",
         str(printable(value, 60), ": Transformer Engine 2.20 reads no such variable"),
         nearest.empty() ? "unset it" : str("did you mean ", nearest, "? Otherwise unset it")});
  }
  return out;
}

std::vector<Finding> judge_python_gpu(const PythonFacts& facts) {
  std::vector<Finding> out = {judge_driver_for(facts)};
  if (facts.nvml.gpus.empty()) {
    const std::string why = facts.nvml.problem.empty() ? "NVML lists none" : facts.nvml.problem;
    out.push_back(gpu_line("compute capability",
                           facts.require_gpu ? Status::kFail : Status::kNotChecked,
                           "a GPU of compute capability 8.9 or above",
                           str("no GPU seen: ", why, ". Run this on the machine that trains"),
                           facts.require_gpu ? "run it where the GPUs are" : ""));
    return out;
  }
  for (size_t i = 0; i < facts.nvml.gpus.size(); ++i) {
    const GpuState& gpu = facts.nvml.gpus[i];
    const int capability = 10 * gpu.major + gpu.minor;
    const std::string id = str("gpu ", i);
    const std::string name = printable(gpu.name, 60);
    if (capability == 0) {
      out.push_back(gpu_line(id, Status::kNotChecked, "",
                             name + ": NVML does not tell its compute capability"));
      continue;
    }
    const bool has_fp8 = capability >= 89;
    out.push_back(gpu_line(
        id, has_fp8 ? Status::kOk : Status::kFail, "compute capability 8.9 or above for FP8",
        str(name, ", compute capability ", gpu.major, ".", gpu.minor),
        has_fp8 ? "" : "train in BF16 here; FP8 takes Ada, Hopper or Blackwell"));
  }
  return out;
}

std::vector<Finding> judge_python(const PythonFacts& facts) {
  std::vector<Finding> all;
  for (auto part : {judge_python_gpu(facts), judge_python_packages(facts), judge_python_fit(facts),
                    judge_known_bad(facts), judge_nvte_names(facts)})
    all.insert(all.end(), std::make_move_iterator(part.begin()),
               std::make_move_iterator(part.end()));
  return all;
}

}  // namespace octavo::verify

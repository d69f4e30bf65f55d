// Whether the versions of an environment fit together: what the packages' metadata require, one
// CUDA for all, and the three packages of Transformer Engine.

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "python_env/requirement.h"
#include "verify/judge_python.h"

namespace octavo::verify {
namespace {

Finding fit_line(std::string id, Status status, std::string wanted, std::string found,
                 std::string fix = {}) {
  return {Section::kFit,     std::move(id),    status,
          std::move(wanted), std::move(found), std::move(fix)};
}

// How the requirements of one package hold.
struct RequirementCount {
  size_t hold = 0, elsewhere = 0, unknown = 0;
};

void judge_requirement(const PythonFacts& facts, const python_env::Package& package,
                       const std::string& line, const python_env::MarkerValues& values,
                       RequirementCount& count, std::vector<Finding>& out) {
  const auto wanted = python_env::parse_requirement(line);
  const auto applies = wanted ? python_env::holds(wanted->marker, values) : std::nullopt;
  if (!wanted || !applies) {
    ++count.unknown;
    return;
  }
  if (!*applies) {
    ++count.elsewhere;
    return;
  }
  const python_env::Package* there = find_package(facts, wanted->name);
  const auto version = there != nullptr ? there->version() : std::nullopt;
  if (there != nullptr && !version) {
    ++count.unknown;
    return;
  }
  if (version && python_env::allows(wanted->specifiers, *version)) {
    ++count.hold;
    return;
  }
  const std::string range = printable(str(wanted->name, wanted->versions), 120);
  out.push_back(
      fit_line(str(package.name, " and ", printable(wanted->name, 60)), Status::kWarn,
               str(range, ", which ", package.name, " ", printable(package.metadata.version, 40),
                   " requires"),
               version ? printable(there->metadata.version, 60) : "not installed",
               str("pip install \"", range, "\", or a ", package.name, " that takes the other")));
}

void judge_requirements(const PythonFacts& facts, std::vector<Finding>& out) {
  const auto values = python_env::marker_values(facts.environment.python_version);
  for (const Part& part : parts()) {
    if (part.is_library || part.id == "te-cu13" || part.id == "numpy") continue;
    if (!concerns(part, facts.trainer)) continue;
    for (const std::string_view name : part.packages) {
      const python_env::Package* package = find_package(facts, name);
      if (package == nullptr || !package->problem.empty()) continue;
      RequirementCount count;
      for (const std::string& line : package->metadata.requirements)
        judge_requirement(facts, *package, line, values, count, out);
      const Status status = count.unknown > 0 ? Status::kNotChecked : Status::kOk;
      out.push_back(fit_line(
          str(name, ", requirements"), status, "",
          str(count.hold, " hold, ", count.elsewhere, " are for other machines or optional parts",
              count.unknown > 0 ? str(", ", count.unknown, " could not be judged") : "")));
    }
  }
}

void judge_python_range(const PythonFacts& facts, std::vector<Finding>& out) {
  const auto python = python_env::parse_version(facts.environment.python_version);
  for (const std::string_view name : {"torch", "transformer-engine", "torchao", "megatron-core"}) {
    const python_env::Package* package = find_package(facts, name);
    if (package == nullptr || package->metadata.requires_python.empty()) continue;
    const std::string range = printable(package->metadata.requires_python, 80);
    const auto specifiers = python_env::parse_specifiers(package->metadata.requires_python);
    const std::string id = str(name, " and Python");
    if (!python || !specifiers)
      out.push_back(fit_line(id, Status::kNotChecked, "Python " + range,
                             python ? "a range that PEP 440 does not know: " + range
                                    : "Python's version is not known"));
    else if (!python_env::allows(*specifiers, *python))
      out.push_back(fit_line(id, Status::kFail, "Python " + range, python->text(),
                             str("make the environment again with a Python ", range)));
    else
      out.push_back(fit_line(id, Status::kOk, "Python " + range, python->text()));
  }
}

// One CUDA for torch, Transformer Engine and the runtime.
void judge_cuda(const PythonFacts& facts, std::vector<Finding>& out) {
  const PartVersion torch = version_of(facts, "torch");
  if (!torch.version) return;
  if (std::ranges::find(torch.version->local, "cpu") != torch.version->local.end()) {
    out.push_back(fit_line("torch and CUDA", Status::kFail, "a torch for CUDA",
                           torch.text + ", which is built for CPUs alone",
                           "install a torch for CUDA (pytorch.org, Get started)"));
    return;
  }
  const uint64_t cuda = cuda_major_of_torch(facts);
  if (cuda == 0) {
    out.push_back(fit_line("torch and CUDA", Status::kNotChecked, "",
                           "torch's metadata do not tell the CUDA that it was built for"));
    return;
  }
  const PartVersion core = version_of(facts, "te-core");
  const bool has_te = core.is_there && facts.trainer != Trainer::kTorchao;
  const std::string core_name = str("transformer-engine-cu", cuda);
  if (has_te && core.source != core_name)
    out.push_back(
        fit_line("Transformer Engine and CUDA", Status::kFail,
                 str(core_name, ", since torch is for CUDA ", cuda), core.source,
                 str("pip uninstall ", core.source,
                     "; pip install --no-build-isolation "
                     "\"transformer-engine[pytorch,core_cu",
                     cuda, "]\" (TransformerEngine issue 2040: libcublas is not found)")));
  else
    out.push_back(fit_line("torch and CUDA", Status::kOk, "", str("CUDA ", cuda)));
  const PartVersion runtime = version_of(facts, "cuda");
  if (runtime.version && runtime.version->number(0) != cuda)
    out.push_back(fit_line("CUDA runtime and torch", Status::kWarn,
                           str("CUDA ", cuda, ", for which torch is built"),
                           str(runtime.text, " (", runtime.source, ")"),
                           "remove the other CUDA, or install the torch that belongs to it"));
}

void judge_te_packages(const PythonFacts& facts, std::vector<Finding>& out) {
  if (facts.trainer == Trainer::kTorchao) return;
  const PartVersion te = version_of(facts, "te"), core = version_of(facts, "te-core"),
                    torch_part = version_of(facts, "te-torch");
  if (!te.is_there) return;
  const std::string id = "Transformer Engine's packages";
  const std::string fix = str("pip install --no-build-isolation \"transformer-engine[pytorch]==",
                              printable(te.text, 40), "\"");
  if (torch_part.is_there && !core.is_there) {
    out.push_back(fit_line(id, Status::kFail, "transformer-engine-cu12 or -cu13",
                           "\"Could not find TE core package\": none is installed", fix));
    return;
  }
  std::vector<std::string> found = {str("transformer-engine ", te.text)};
  bool same = true;
  for (const PartVersion& other : {core, torch_part}) {
    if (!other.is_there) continue;
    found.push_back(str(other.source, " ", other.text));
    same = same && other.text == te.text;
  }
  if (!same)
    out.push_back(fit_line(id, Status::kFail,
                           "one version (\"package version mismatch\" otherwise)",
                           printable(join(found, ", "), 200), fix));
  else
    out.push_back(fit_line(id, Status::kOk, "one version", printable(join(found, ", "), 200)));
  if (core.is_there && !torch_part.is_there)
    out.push_back(fit_line("Transformer Engine's PyTorch part", Status::kFail,
                           "transformer-engine-torch", "not installed", fix));
  out.push_back(fit_line(
      "Transformer Engine and torch", Status::kNotChecked, "",
      "which torch its PyTorch part was compiled with is in no metadata. If importing it ends with "
      "\"undefined symbol\" (TransformerEngine issue 1684), install it again with this torch: pip "
      "install --no-build-isolation --no-cache-dir --force-reinstall --no-deps "
      "transformer-engine-torch"));
}

}  // namespace

std::vector<Finding> judge_python_fit(const PythonFacts& facts) {
  std::vector<Finding> out;
  judge_python_range(facts, out);
  judge_cuda(facts, out);
  judge_te_packages(facts, out);
  judge_requirements(facts, out);
  return out;
}

}  // namespace octavo::verify

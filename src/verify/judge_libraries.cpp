// NVIDIA's libraries, alone and together.

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "verify/judge.h"

namespace octavo::verify {
namespace {

constexpr Version kLeastCudnn{9, 0, 0}, kLeastTe{2, 18, 0};

constexpr const char* kReinstall =
    "run ./bootstrap again: it installs torch and the NVIDIA libraries that belong to it";

Finding library_finding(std::string id, Status status, std::string wanted, std::string found,
                        std::string fix = {}) {
  return {Section::kLibraries, std::move(id),    status,
          std::move(wanted),   std::move(found), std::move(fix)};
}

// The CUDA that the runtime, or failing that libtorch_cuda, stands for.
int cuda_major(const Libraries& libraries) {
  return libraries.cudart.version.known() ? libraries.cudart.version.major : libraries.cuda_major;
}

// Without a GPU nobody calls these libraries: what is wrong with them is only worth a note.
Status unless_idle(const Facts& facts, Status status) {
  return facts.gpus.gpus.empty() && facts.driver.file.empty() ? Status::kNote : status;
}

// Found and loadable: "" and the finding is to be judged on; otherwise the finding is final.
bool is_missing(const Facts& facts, const Library& library, Finding& f) {
  if (!library.file.empty() && library.problem.empty()) return false;
  f.status = unless_idle(facts, Status::kFail);
  f.found = library.file.empty() ? "not found" : str(library.file, ": ", library.problem);
  f.fix = kReinstall;
  return true;
}

// Whether the loader is told to look there before a library's own places.
bool is_pushed_forward(const Facts& facts, const std::string& file) {
  const auto value = [&](const char* name) {
    const auto it = facts.environment.find(name);
    return it == facts.environment.end() ? std::string() : it->second;
  };
  for (const std::string& folder : split(value("LD_LIBRARY_PATH"), ':'))
    if (!folder.empty() && fs::path(file).parent_path() == fs::path(folder + "/").parent_path())
      return true;
  return value("LD_PRELOAD").find(file) != std::string::npos;
}

// Another file of the same name. octavo opens torch's by their paths; but parts that those open by
// name (cuDNN's engines), and libraries without a path of their own, get what LD_LIBRARY_PATH has.
void judge_other(const Facts& facts, const std::string& name, const Library& library,
                 std::vector<Finding>& out) {
  if (library.other_file.empty() || library.other_version == library.version) return;
  const bool pushed = is_pushed_forward(facts, library.other_file);
  out.push_back(library_finding(
      name + ", twice", pushed ? unless_idle(facts, Status::kWarn) : Status::kNote,
      str("one ", name, ", torch's ", library.version.text()),
      str(library.version.text(), " of torch, and ", library.other_version.text(), " in ",
          library.other_file,
          pushed ? ", which comes first for whatever is opened by name alone"
                 : ", which is not used: octavo opens torch's by its path"),
      pushed ? str("take the folder of ", library.other_file,
                   " off LD_LIBRARY_PATH (or the file off LD_PRELOAD), or make it the same version")
             : ""));
}

Finding judge_cudart(const Facts& facts) {
  const Libraries& l = facts.libraries;
  Finding f = library_finding("CUDA runtime", Status::kOk, "", "");
  if (l.cuda_major != 0) f.wanted = str("CUDA ", l.cuda_major, ".x, as libtorch_cuda asks for");
  if (is_missing(facts, l.cudart, f)) return f;
  f.found = str(l.cudart.version.text(), " (", l.cudart.file, ")");
  if (l.cuda_major != 0 && l.cudart.version.major != l.cuda_major) {
    f.status = Status::kFail;
    f.fix = kReinstall;
  }
  return f;
}

// Built for a CUDA of another major version: two runtimes in one process.
bool is_of_other_cuda(const Libraries& l, const Version& version, Finding& f) {
  const int major = cuda_major(l);
  if (major == 0 || !version.known() || version.major == major) return false;
  f.status = Status::kFail;
  f.fix = str("install the one for CUDA ", major, "; ", kReinstall);
  return true;
}

// Recipes that this cuBLASLt cannot multiply by: "blockwise (12.9)".
std::vector<std::string> too_new_for(const Version& cublaslt) {
  std::vector<std::string> names;
  for (const fp8::RecipeTraits& row : fp8::kRecipeTraits)
    if (cublaslt < Version{row.cublaslt.major, row.cublaslt.minor, 0})
      names.push_back(
          str(config::name_of(row.recipe), " (", row.cublaslt.major, ".", row.cublaslt.minor, ")"));
  return names;
}

Finding judge_cublaslt(const Facts& facts, const Requirements& wanted) {
  const Libraries& l = facts.libraries;
  Finding f = library_finding("cuBLASLt", Status::kOk,
                              str("of CUDA ", cuda_major(l), ", 12.9 or above"), "");
  if (is_missing(facts, l.cublaslt, f)) return f;
  const Version v = l.cublaslt.version;
  f.found = str(v.text(), " (", l.cublaslt.file, ")");
  if (is_of_other_cuda(l, v, f)) return f;
  const auto [major, minor] = fp8::traits_of(wanted.recipe).cublaslt;
  if (const auto recipes = too_new_for(v); !recipes.empty()) {
    f.status = v < Version{major, minor, 0} ? Status::kFail : Status::kWarn;
    f.found += "; too old for fp8_recipe " + join(recipes, " and ");
    f.fix = str("take fp8_recipe delayed or current, or ", kReinstall);
  }
  return f;
}

Finding judge_cudnn(const Facts& facts) {
  const Libraries& l = facts.libraries;
  Finding f = library_finding("cuDNN", Status::kOk, str("9 or above, of CUDA ", cuda_major(l)), "");
  if (is_missing(facts, l.cudnn, f)) return f;
  f.found = str(l.cudnn.version.text(), ", built with CUDA ", l.cudnn.built_for.text(), " (",
                l.cudnn.file, ")");
  if (is_of_other_cuda(l, l.cudnn.built_for, f)) return f;
  if (l.cudnn.version < kLeastCudnn) {
    f.status = Status::kFail;
    f.fix = kReinstall;
  }
  return f;
}

Finding judge_plain(const Facts& facts, std::string id, const Library& library,
                    std::string wanted) {
  Finding f = library_finding(std::move(id), Status::kOk, std::move(wanted), "");
  if (is_missing(facts, library, f)) return f;
  f.found = str(library.version.text(), " (", library.file, ")");
  return f;
}

// The major number in "libcudart.so.12", or 0.
int cuda_asked_for(const Library& library) {
  for (const std::string& soname : library.needed)
    if (soname.starts_with("libcudart.so."))
      return std::atoi(soname.c_str() + std::string_view("libcudart.so.").size());
  return 0;
}

Finding judge_te(const Facts& facts, const Requirements& wanted) {
  const Libraries& l = facts.libraries;
  const int major = cuda_major(l);
  Finding f = library_finding("Transformer Engine", Status::kOk,
                              str("version ", kLeastTe.text(), " or later of 2.x, built for CUDA ",
                                  major, "; without it the aten backend runs"),
                              "");
  const std::string install =
      str("pip install transformer_engine_cu", major,
          ", or name its libtransformer_engine.so in OCTAVO_TE_LIBRARY; or take fp8_backend aten");
  if (l.te.file.empty() || !l.te.problem.empty()) {
    f.status = wanted.te ? Status::kFail : l.te.file.empty() ? Status::kNote : Status::kWarn;
    f.found = l.te.file.empty() ? "not found" : str(l.te.file, ": ", l.te.problem);
    f.fix = install;
    return f;
  }
  const int asked = cuda_asked_for(l.te);
  f.found = str(l.te.version.text(), ", built for CUDA ", asked, " (", l.te.file, ")");
  if (asked != 0 && major != 0 && asked != major) {
    f.status = Status::kFail;
    f.fix = install;
  } else if (l.te.version.known() && (l.te.version.major != 2 || l.te.version < kLeastTe)) {
    f.status = Status::kFail;
    f.fix = install;
  } else if (l.nvrtc.file.empty()) {
    f.status = unless_idle(facts, Status::kFail);
    f.found += "; its norms are compiled by NVRTC, which is not found";
    f.fix = kReinstall;
  }
  return f;
}

Finding judge_torch(const Facts& facts) {
  const Libraries& l = facts.libraries;
  Finding f = library_finding("torch", Status::kOk,
                              str(l.torch_built.text(), ", which octavo was built with"),
                              l.torch_found.text());
  if (!l.torch_found.known()) {
    f.status = Status::kNotChecked;
    f.found = "no version beside libtorch_cpu.so";
  } else if (l.torch_found != l.torch_built) {
    f.status = Status::kFail;
    f.fix = "run ./bootstrap and build again: the two do not share an ABI";
  }
  return f;
}

}  // namespace

std::vector<Finding> judge_libraries(const Facts& facts, const Requirements& wanted) {
  const Libraries& l = facts.libraries;
  std::vector<Finding> out = {judge_torch(facts),
                              judge_cudart(facts),
                              judge_cublaslt(facts, wanted),
                              judge_cudnn(facts),
                              judge_plain(facts, "NCCL", l.nccl, "torch's own"),
                              judge_plain(facts, "NVRTC", l.nvrtc, "of the same CUDA"),
                              judge_te(facts, wanted)};
  if (out[5].status == Status::kOk) is_of_other_cuda(l, l.nvrtc.version, out[5]);
  judge_other(facts, "CUDA runtime", l.cudart, out);
  judge_other(facts, "cuBLASLt", l.cublaslt, out);
  judge_other(facts, "cuDNN", l.cudnn, out);
  judge_other(facts, "NCCL", l.nccl, out);
  return out;
}

}  // namespace octavo::verify

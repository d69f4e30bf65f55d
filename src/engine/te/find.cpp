#include "engine/te/find.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log.h"
#include "base/text.h"

namespace octavo::engine::te {
namespace {

constexpr char kFileName[] = "libtransformer_engine.so";

// A library of a wheel: of CUDA, in its folder or that of the part; or of a wheel of its own, whose
// name and number do not follow CUDA's.
struct Companion {
  const char *part, *name;
  bool is_cuda = false;
};

// What the library calls and what its own list of needed libraries leaves out or would look for in
// the wrong place: libnvrtc is not in the list at all and a norm would end the process without it,
// and cuDNN must be of one version in all its parts. Libraries that are open already stay as they
// are; those beside libtorch come before the system's.
constexpr Companion kCompanions[] = {
    {"cuda_runtime", "libcudart.so.", true},
    {"cuda_nvrtc", "libnvrtc.so.", true},
    {"cublas", "libcublasLt.so.", true},
    {"cublas", "libcublas.so.", true},
    {"nccl", "libnccl.so.2"},
    {"cudnn", "libcudnn.so.9"},
    {"cudnn", "libcudnn_graph.so.9"},
    {"cudnn", "libcudnn_ops.so.9"},
    {"cudnn", "libcudnn_engines_runtime_compiled.so.9"},
    {"cudnn", "libcudnn_engines_precompiled.so.9"},
    {"cudnn", "libcudnn_heuristic.so.9"},
    {"cudnn", "libcudnn_cnn.so.9"},
    {"cudnn", "libcudnn_adv.so.9"},
};

// What could not be opened: the reason, should the library itself fail to open.
std::vector<std::string> open_companions() {
  std::vector<std::string> missing;
  for (const Companion& companion : kCompanions) {
    const std::string name =
        companion.is_cuda ? str(companion.name, OCTAVO_CUDA_MAJOR) : companion.name;
    const int how = RTLD_LAZY | RTLD_GLOBAL;
    void* open = dlopen(name.c_str(), how | RTLD_NOLOAD);
    for (const fs::path& folder : cuda_wheel_folders(torch_site_packages(), companion.part))
      if (open == nullptr) open = dlopen((folder / "lib" / name).c_str(), how);
    if (open == nullptr && dlopen(name.c_str(), how) == nullptr) missing.push_back(name);
  }
  return missing;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// The library's norms are compiled by NVRTC when they first run, with CUDA's headers, which it
// looks for in NVTE_CUDA_INCLUDE_DIR, CUDA_HOME, CUDA_DIR, and only then beside itself. Where
// CUDA_HOME is a cluster's CUDA of another version, its headers do not fit the NVRTC beside
// libtorch. So those that came with that NVRTC are named first; who has named others keeps them.
void point_to_headers() {
  constexpr char kVariable[] = "NVTE_CUDA_INCLUDE_DIR";
  fs::path headers;
  for (const fs::path& folder : cuda_wheel_folders(torch_site_packages(), "cuda_runtime"))
    if (headers.empty() && fs::exists(folder / "include/cuda_runtime.h"))
      headers = folder / "include";
  if (is_set(kVariable) || headers.empty()) return;
  ::setenv(kVariable, headers.c_str(), /*overwrite=*/1);
  for (const char* other : {"CUDA_HOME", "CUDA_DIR"})
    if (is_set(other))
      log_info(str("Transformer Engine compiles its norms with the CUDA headers of its wheel (",
                   headers.string(), "), not with those of ", other, " (", std::getenv(other),
                   "); ", kVariable, " names others"));
}

// The library itself has no function that tells its version. Its wheel has a folder that does:
// transformer_engine_cu13-2.20.2.dist-info, beside the package.
std::string version_beside(const fs::path& file) {
  std::error_code error;
  fs::path folder = fs::weakly_canonical(file, error).parent_path();
  for (int up = 0; up < 3; ++up, folder = folder.parent_path())
    if (const std::string found = installed_version(folder, "transformer_engine"); !found.empty())
      return found.substr(0, found.find_first_not_of("0123456789."));
  return kUnknownVersion;
}

// The file that a handle was opened from, for names that the loader looked up itself.
std::string file_of(void* handle) {
  Dl_info info{};
  void* const function = dlsym(handle, "nvte_create_tensor");
  const bool known = function != nullptr && dladdr(function, &info) != 0;
  return known ? info.dli_fname : kFileName;
}

}  // namespace

Opened open_library() {
  std::vector<std::string> places;
  const char* given = std::getenv("OCTAVO_TE_LIBRARY");
  if (given != nullptr && *given != '\0') {
    places = {given};
  } else {
    const fs::path packages = torch_site_packages();
    for (const char* folder : {"transformer_engine/wheel_lib", "transformer_engine", ""})
      places.push_back(packages / folder / kFileName);
    places.emplace_back(kFileName);
  }
  // Without a driver the only library that is of use is a test's stand-in, which needs no others.
  std::vector<std::string> missing;
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    missing = open_companions();
    point_to_headers();
  }
  std::vector<std::string> found;
  for (const std::string& place : places) {
    const bool is_path = place.find('/') != std::string::npos;
    if (is_path && !fs::exists(place)) {
      found.push_back(place + " (no such file)");
      continue;
    }
    // Now, not lazily: a symbol that nobody has must be found out here and not inside a step.
    void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      const std::string path = file_of(handle);
      return {handle, path, version_beside(path), ""};
    }
    const char* said = dlerror();
    found.push_back(str(place, " (", said != nullptr ? said : "does not load", ")"));
  }
  const std::string companions = missing.empty() ? "" : "; not found: " + join(missing, ", ");
  return {
      nullptr, "", "",
      str("Transformer Engine: wanted ", kFileName, ", looked for ", join(found, ", "), companions,
          "; install transformer_engine_cu", OCTAVO_CUDA_MAJOR, ", or set OCTAVO_TE_LIBRARY")};
}

}  // namespace octavo::engine::te

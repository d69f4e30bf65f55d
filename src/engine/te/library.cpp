#include "engine/te/library.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/devices.h"
#include "engine/te/find.h"
#include "engine/te/te_double.h"
#include "fp8/gemm_layouts.h"

namespace octavo::engine::te {
namespace {

constexpr int kMajor = 2, kLeastMinor = 18;

// "" when the version is one that this was written for.
std::string version_problem(const Library& library) {
  if (library.version == kUnknownVersion) return "";
  int major = 0, minor = 0;
  if (std::sscanf(library.version.c_str(), "%d.%d", &major, &minor) == 2 && major == kMajor &&
      minor >= kLeastMinor)
    return "";
  return str(library.path, " is version ", library.version, ", wanted ", kMajor, ".", kLeastMinor,
             " or later of ", kMajor, ".x; install transformer_engine_cu", OCTAVO_CUDA_MAJOR,
             " of such a version");
}

std::string bind(void* handle, Library& library) {
  std::vector<std::string> missing;
  const auto get = [&](auto& function) {
    void* address = dlsym(handle, function.name());
    if (address == nullptr) missing.emplace_back(function.name());
    function.set(address);
  };
#define OCTAVO_TE_BIND(name) get(library.name);
  OCTAVO_TE_FUNCTIONS(OCTAVO_TE_BIND)
#undef OCTAVO_TE_BIND
  if (missing.empty()) return "";
  return str(library.path, " (version ", library.version, ") lacks ", join(missing, ", "),
             "; wanted version ", kMajor, ".", kLeastMinor, " or later of ", kMajor, ".x");
}

Search look() {
  static Library library;
  Opened opened = open_library();
  if (opened.handle == nullptr) return {nullptr, std::move(opened.problem)};
  library.path = opened.path;
  library.version = opened.version;
  if (auto* capability = reinterpret_cast<int (*)()>(dlsym(opened.handle, kDoubleMarker)))
    library.double_capability = capability();
  std::string problem = version_problem(library);
  if (problem.empty()) problem = bind(opened.handle, library);
  if (!problem.empty()) return {nullptr, "Transformer Engine: " + problem};
  if (library.version == kUnknownVersion && library.double_capability == 0)
    log_warn(str("Transformer Engine: nothing beside ", library.path,
                 " tells its version; it has every function that is called"));
  return {&library, ""};
}

cudaStream_t stream_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return static_cast<cudaStream_t>(guard.getStream(device).native_handle());
}

}  // namespace

void report_exception(const char* call, const char* said) {
  fail(ExitCode::kEnvironment, "te", call, " of Transformer Engine ", library().version,
       " failed: ", said, "; fp8_backend aten runs without it");
}

const Search& search() {
  static const Search found = look();
  return found;
}

const Library& library() {
  if (search().library == nullptr) fail(ExitCode::kEnvironment, "te", search().problem);
  return *search().library;
}

bool Library::serves(at::Device device) const {
  if (double_capability == 0) return device.is_cuda();
  return device.is_cpu() || computes_on_host(device);
}

const DeviceFacts& facts_of(at::Device device) {
  if (!library().serves(device))
    fail(ExitCode::kEnvironment, "te", "wanted tensors of a GPU, found them on ", device.str());
  if (device.is_cpu()) {
    static const DeviceFacts of_double = {
        .capability = library().double_capability,
        .multiprocessors = 1,
        .any_layout = library().nvte_is_non_tn_fp8_gemm_supported() != 0};
    return of_double;
  }
  static const std::vector<DeviceFacts> all = [] {
    std::vector<DeviceFacts> made;
    for (const GpuInfo& gpu : gpus().gpus) {
      const int capability = 10 * gpu.major + gpu.minor;
      made.push_back({capability, gpu.multiprocessors, fp8::takes_any_layout(capability)});
    }
    return made;
  }();
  const auto index = static_cast<size_t>(device.has_index() ? device.index() : 0);
  if (index >= all.size())
    fail(ExitCode::kEnvironment, "te", "wanted the GPU ", device.str(), ", found ", all.size(),
         " of them");
  return all[index];
}

OnDevice::OnDevice(const at::Tensor& tensor)
    : guard(tensor.device()),
      device(tensor.device()),
      facts(facts_of(device)),
      stream(stream_of(device)) {}

}  // namespace octavo::engine::te

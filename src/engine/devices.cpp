#include "engine/devices.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "engine/cuda/cuda_module.h"
#include "fake_cuda/fake_cuda.h"

namespace octavo::engine {
namespace {

// Beside the library that this code is in.
fs::path module_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&gpus), &info);
  return fs::path(info.dli_fname != nullptr ? info.dli_fname : "").parent_path() /
         "liboctavo_cuda.so";
}

GpuSearch find_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return {{}, "no NVIDIA driver: libcuda.so.1 is not on this machine"};
  const auto start = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const int status = start != nullptr ? start(0) : -1;
  if (status != 0) return {{}, str("the NVIDIA driver does not start: cuInit returned ", status)};
  void* module = dlopen(module_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) return {{}, str("the GPU module does not load: ", dlerror())};
  const auto list =
      reinterpret_cast<decltype(&octavo_cuda_devices)>(dlsym(module, "octavo_cuda_devices"));
  if (list == nullptr) return {{}, "the GPU module is of another version; build both again"};

  constexpr int32_t kCapacity = 64;
  std::vector<OctavoCudaDevice> found(kCapacity);
  found.resize(static_cast<size_t>(std::min(list(found.data(), kCapacity), kCapacity)));
  GpuSearch result;
  for (const auto& d : found)
    result.gpus.push_back({d.name, d.major, d.minor, d.memory_bytes, d.multiprocessors});
  if (result.gpus.empty()) result.reason = "the NVIDIA driver shows no device";
  return result;
}

}  // namespace

const GpuSearch& gpus() {
  static const GpuSearch found = find_gpus();
  return found;
}

bool is_fake(at::Device device) {
  return device.is_cuda() && fake_cuda::is_active();
}

bool computes_on_host(at::Device device) {
  static const bool told = [] {  // asked at every launch
    const char* value = std::getenv("OCTAVO_FAKE_CUDA_COMPUTE");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return told && is_fake(device);
}

}  // namespace octavo::engine

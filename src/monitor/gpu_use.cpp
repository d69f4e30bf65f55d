#include "monitor/gpu_use.h"

#include <dlfcn.h>

#include <algorithm>

namespace octavo::monitor {
namespace {

constexpr unsigned kMostGpus = 64;

// Whether the library has the function and it gave 0. Its types are NVML's own, which we do not
// have: to call it through others is what the sanitizer is told to leave alone.
template <class... Args>
__attribute__((no_sanitize("undefined"))) bool nvml_call(void* library, const char* name,
                                                         Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  return function != nullptr && function(args...) == 0;
}

}  // namespace

GpuReader::GpuReader(const char* library) : library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) return;
  unsigned count = 0;
  if (!nvml_call(library_, "nvmlInit_v2") || !nvml_call(library_, "nvmlDeviceGetCount_v2", &count))
    return;
  for (unsigned i = 0; i < std::min(count, kMostGpus); ++i) {
    void* device = nullptr;
    nvml_call(library_, "nvmlDeviceGetHandleByIndex_v2", i, &device);
    devices_.push_back(device);
  }
}

GpuReader::~GpuReader() {
  if (library_ == nullptr) return;
  nvml_call(library_, "nvmlShutdown");
  dlclose(library_);
}

std::vector<GpuUse> GpuReader::read() const {
  std::vector<GpuUse> all;
  for (size_t i = 0; i < devices_.size(); ++i) {
    void* device = devices_[i];
    if (device == nullptr) continue;
    GpuUse use{.index = static_cast<int>(i), .busy_percent = {}, .watts = {}, .memory_bytes = {}};
    struct {
      unsigned gpu, memory;
    } rates{};
    struct {
      unsigned long long total, free, used;
    } memory{};
    unsigned milliwatts = 0;
    if (nvml_call(library_, "nvmlDeviceGetUtilizationRates", device, static_cast<void*>(&rates)))
      use.busy_percent = rates.gpu;
    if (nvml_call(library_, "nvmlDeviceGetPowerUsage", device, &milliwatts))
      use.watts = milliwatts / 1e3;
    if (nvml_call(library_, "nvmlDeviceGetMemoryInfo", device, static_cast<void*>(&memory)))
      use.memory_bytes = static_cast<double>(memory.used);
    all.push_back(use);
  }
  return all;
}

}  // namespace octavo::monitor

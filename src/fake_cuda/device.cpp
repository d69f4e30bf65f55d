// Which device is faked: options, properties, attributes, the current device of each thread.
#include "fake_cuda/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace octavo::fake_cuda {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kH100Memory = 81079 * kMiB;  // what an 80 GB H100 shows to a program
constexpr int kMaxDevices = 64;
constexpr int kVirtualMemoryManagement =
    102;  // the runtime's header has no name for it, the driver's has

constexpr DeviceModel kModels[] = {
    {80, 108, 166912, 167936, 2048, 32, 41943040, 5120},    // A100
    {89, 142, 101376, 102400, 1536, 24, 100663296, 384},    // L40S
    {90, 132, 232448, 233472, 2048, 32, 52428800, 5120},    // H100
    {100, 148, 232448, 233472, 2048, 32, 132644864, 8192},  // B200
    {103, 148, 232448, 233472, 2048, 32, 132644864, 8192},  // B300
    {120, 188, 101376, 102400, 1536, 24, 134217728, 512},   // RTX PRO 6000
};

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::array<std::atomic<bool>, kMaxDevices> used{};

[[noreturn]] void refuse(const char* name, const char* value, const char* wanted) {
  say(std::string(name) + ": wanted " + wanted + ", found '" + value + "'");
  std::_Exit(2);
}

std::size_t number(const char* name, std::size_t otherwise) {
  const char* const text = variable(name);
  if (text == nullptr || *text == '\0') return otherwise;
  std::size_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc() || result.ptr != end) refuse(name, text, "a whole number");
  return value;
}

DeviceOptions read_options() {
  DeviceOptions read;
  read.capability = static_cast<int>(number("OCTAVO_FAKE_CUDA_CAPABILITY", 90));
  read.memory = number("OCTAVO_FAKE_CUDA_MEMORY", kH100Memory);
  read.devices = static_cast<int>(number("OCTAVO_FAKE_CUDA_DEVICES", 1));
  read.compute = number("OCTAVO_FAKE_CUDA_COMPUTE", 0) != 0;
  read.driver = static_cast<int>(number("OCTAVO_FAKE_CUDA_DRIVER", 13020));
  read.events = number("OCTAVO_FAKE_CUDA_EVENTS", 1000000);
  const char* const file = variable("OCTAVO_FAKE_CUDA_RECORD");
  read.record = file == nullptr ? "" : file;
  bool known = false;
  for (const DeviceModel& candidate : kModels) known |= candidate.capability == read.capability;
  if (!known)
    refuse("OCTAVO_FAKE_CUDA_CAPABILITY", std::to_string(read.capability).c_str(),
           "80, 89, 90, 100, 103 or 120");
  if (read.devices > kMaxDevices) {
    refuse("OCTAVO_FAKE_CUDA_DEVICES", std::to_string(read.devices).c_str(), "at most 64");
  }
  say("this process sees " + std::to_string(read.devices) +
      " CUDA device(s) of compute capability " + std::to_string(read.capability / 10) + "." +
      std::to_string(read.capability % 10) + " that are not there; kernels do not run" +
      (read.compute ? ", GEMMs do" : ""));
  return read;
}

bool has_ability(int attribute) {
  constexpr int kAbilities[] = {cudaDevAttrConcurrentKernels,
                                cudaDevAttrUnifiedAddressing,
                                cudaDevAttrGpuOverlap,
                                cudaDevAttrCanMapHostMemory,
                                cudaDevAttrStreamPrioritiesSupported,
                                cudaDevAttrManagedMemory,
                                cudaDevAttrConcurrentManagedAccess,
                                cudaDevAttrComputePreemptionSupported,
                                cudaDevAttrCooperativeLaunch,
                                cudaDevAttrMemoryPoolsSupported,
                                cudaDevAttrHostRegisterSupported,
                                cudaDevAttrGlobalL1CacheSupported,
                                cudaDevAttrLocalL1CacheSupported,
                                kVirtualMemoryManagement};
  return std::find(std::begin(kAbilities), std::end(kAbilities), attribute) != std::end(kAbilities);
}

}  // namespace

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr) return value;
  constexpr std::string_view kPrefix = "OCTAVO_FAKE_CUDA_";
  return std::getenv(("OCTAVO_ABSENT_" + std::string(name).substr(kPrefix.size())).c_str());
}

void say(const std::string& text) {
  std::fprintf(stderr, "[fake CUDA device] %s\n", text.c_str());
}

const DeviceOptions& options() {
  static const auto* const read =
      new DeviceOptions(read_options());  // never destroyed: it is asked for until the end
  return *read;
}

const DeviceModel& model() {
  static const DeviceModel& chosen = []() -> const DeviceModel& {
    for (const DeviceModel& candidate : kModels) {
      if (candidate.capability == options().capability) return candidate;
    }
    return kModels[2];
  }();
  return chosen;
}

std::string device_name() {
  const int capability = options().capability;
  return "fake GPU, compute capability " + std::to_string(capability / 10) + "." +
         std::to_string(capability % 10);
}

int current_device() {
  return current;
}
void set_current_device(int device) {
  current = device;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t last_error_of_thread(bool clear) {
  const cudaError_t error = last_error;
  if (clear) last_error = cudaSuccess;
  return error;
}

cudaError_t availability() {
  constexpr int kMajor =
      1000;  // of the version's digits: drivers serve every runtime of their major version
  if (options().driver / kMajor < CUDART_VERSION / kMajor) return cudaErrorInsufficientDriver;
  return options().devices > 0 ? cudaSuccess : cudaErrorNoDevice;
}

bool is_device(int device) {
  return device >= 0 && device < options().devices;
}
void use_device(int device) {
  used[device] = true;
}
bool in_use(int device) {
  return is_device(device) && used[device];
}

int blocks_per_multiprocessor(int threads, std::size_t dynamic_shared_memory) {
  if (threads <= 0) return 0;
  constexpr std::size_t kReserved = 1024;  // that the system takes per block
  const std::size_t by_memory =
      model().shared_memory_multiprocessor / (dynamic_shared_memory + kReserved);
  const int by_threads = model().threads_multiprocessor / threads;
  return std::min({by_threads, static_cast<int>(by_memory), model().blocks_multiprocessor});
}

int device_attribute(int attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      return 1024;
    case cudaDevAttrMaxBlockDimZ:
      return 64;
    case cudaDevAttrMaxGridDimX:
      return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 49152;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return model().shared_memory_block;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return model().shared_memory_multiprocessor;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrTotalConstantMemory:
      return 65536;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxPitch:
      return 2147483647;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrMultiProcessorCount:
      return model().multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return model().threads_multiprocessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return model().blocks_multiprocessor;
    case cudaDevAttrL2CacheSize:
      return model().l2_bytes;
    case cudaDevAttrGlobalMemoryBusWidth:
      return model().memory_bus_bits;
    case cudaDevAttrComputeCapabilityMajor:
      return model().capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
      return model().capability % 10;
    case cudaDevAttrTextureAlignment:
      return 512;
    case cudaDevAttrTexturePitchAlignment:
      return 32;
    case cudaDevAttrAsyncEngineCount:
      return 3;
    case cudaDevAttrClusterLaunch:
      return model().capability >= 90 ? 1 : 0;
    default:
      // Integrated, multicast, fabric handles and the like are not here.
      return has_ability(attribute) ? 1 : 0;
  }
}

}  // namespace octavo::fake_cuda

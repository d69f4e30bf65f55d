#include "engine/cuda/cuda_module.h"

#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string_view>

extern "C" __attribute__((visibility("default"))) int32_t octavo_cuda_devices(
    OctavoCudaDevice* devices, int32_t capacity) {
  const auto count = static_cast<int32_t>(c10::cuda::device_count());
  for (int32_t i = 0; i < std::min(count, capacity); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) return i;
    OctavoCudaDevice& device = devices[i];
    std::memset(&device, 0, sizeof device);
    std::string_view(properties.name).copy(device.name, sizeof device.name - 1);
    device.major = properties.major;
    device.minor = properties.minor;
    device.memory_bytes = properties.totalGlobalMem;
    device.multiprocessors = properties.multiProcessorCount;
  }
  return count;
}

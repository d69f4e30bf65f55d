// The runtime's ways to launch a kernel and to ask about one.
#include <vector>

#include "fake_cuda/device.h"
#include "fake_cuda/kernels.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

namespace {

struct Pending {
  LaunchShape shape;
  cudaStream_t stream;
};
// <<<...>>> pushes its configuration and the kernel's stub takes it back.
thread_local std::vector<Pending> configurations;

cudaError_t occupancy(int* blocks, int threads, std::size_t shared_memory) {
  *blocks = blocks_per_multiprocessor(threads, shared_memory);
  return cudaSuccess;
}

// The compute capability whose code runs: libtorch has none of 8.9 and 10.3, which run that of 8.6
// and 10.0. Its sorting picks a way to sort by it.
int compiled_for() {
  const int capability = model().capability;
  return capability == 89 ? 86 : capability == 103 ? 100 : capability;
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_memory,
                                     cudaStream_t stream) {
  configurations.push_back({{grid, block, shared_memory}, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_memory,
                                       void* stream) {
  if (configurations.empty()) return remember(cudaErrorMissingConfiguration);
  const Pending pending = configurations.back();
  configurations.pop_back();
  *grid = pending.shape.grid;
  *block = pending.shape.block;
  *shared_memory = pending.shape.shared_memory;
  *static_cast<cudaStream_t*>(stream) = pending.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(&find_kernel(function));
  return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return __cudaGetKernel(kernel, function);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* result, const void* symbol) {
  *result = reinterpret_cast<cudaFunction_t>(&find_kernel(symbol));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**,
                               std::size_t shared_memory, cudaStream_t stream) {
  return launch(find_kernel(kernel), {grid, block, shared_memory}, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**,
                             std::size_t shared_memory, cudaStream_t stream) {
  return launch(find_kernel(function), {grid, block, shared_memory}, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**,
                                        std::size_t shared_memory, cudaStream_t stream) {
  return launch(find_kernel(function), {grid, block, shared_memory}, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  return launch(find_kernel(function),
                {config->gridDim, config->blockDim, config->dynamicSmemBytes}, config->stream);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return set_dynamic_shared_memory(find_kernel(function), value);
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute,
                                            int value, int) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = compiled_for();
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes =
      static_cast<int>(find_kernel(function).dynamic_shared_memory);
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  *name = find_kernel(function).name;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          std::size_t shared_memory) {
  return occupancy(blocks, threads, shared_memory);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                   int threads,
                                                                   std::size_t shared_memory,
                                                                   unsigned) {
  return occupancy(blocks, threads, shared_memory);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void*, int blocks,
                                                      int) {
  *bytes = blocks > 0 ? model().shared_memory_multiprocessor / blocks - 1024 : 0;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*,
                                           const cudaLaunchConfig_t* config) {
  const auto threads =
      static_cast<int>(config->blockDim.x * config->blockDim.y * config->blockDim.z);
  *clusters =
      model().multiprocessors * blocks_per_multiprocessor(threads, config->dynamicSmemBytes);
  return cudaSuccess;
}

}  // extern "C"

// The CUDA runtime's functions about devices and errors.
#include <cstdio>
#include <cstring>

#include "fake_cuda/device.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"
#include "fake_cuda/streams.h"

using namespace octavo::fake_cuda;

namespace {

cudaError_t checked_attribute(int* value, int attribute, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  *value = device_attribute(attribute);
  return cudaSuccess;
}

void fill_limits(cudaDeviceProp* p) {
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = model().shared_memory_block;
  p->sharedMemPerMultiprocessor = model().shared_memory_multiprocessor;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = model().threads_multiprocessor;
  p->maxBlocksPerMultiProcessor = model().blocks_multiprocessor;
  p->totalConstMem = 65536;
  p->memPitch = 2147483647;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
}

void fill_abilities(cudaDeviceProp* p) {
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported =
      1;
  p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory =
      p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = p->cooperativeLaunch = p->hostRegisterSupported =
      p->memoryPoolsSupported = 1;
  p->clusterLaunch = model().capability >= 90 ? 1 : 0;
  p->asyncEngineCount = 3;
  p->ECCEnabled = 1;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = availability() == cudaSuccess ? options().devices : 0;
  return remember(availability());
}

cudaError_t cudaGetDevice(int* device) {
  if (availability() != cudaSuccess) return remember(availability());
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (availability() != cudaSuccess) return remember(availability());
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  set_current_device(device);
  use_device(device);
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  use_device(device);
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (availability() != cudaSuccess) return remember(availability());
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "%s", device_name().c_str());
  std::snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "fake-gpu-%d", device);
  p->major = model().capability / 10;
  p->minor = model().capability % 10;
  p->totalGlobalMem = options().memory;
  p->multiProcessorCount = model().multiprocessors;
  p->l2CacheSize = model().l2_bytes;
  p->persistingL2CacheMaxSize = model().l2_bytes / 2;
  p->memoryBusWidth = model().memory_bus_bits;
  p->pciBusID = device + 1;
  fill_limits(p);
  fill_abilities(p);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return checked_attribute(value, attribute, device);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return remember(cudaErrorInvalidDevice);
  std::snprintf(text, length, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return remember(cudaErrorInvalidDevice);
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return is_device(peer) ? cudaSuccess : remember(cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit) {
  *value = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (capture_forbids()) return remember(cudaErrorStreamCaptureUnsupported);
  record(make_event(Kind::kDeviceSync, "cudaDeviceSynchronize"));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = options().driver;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return last_error_of_thread(true);
}
cudaError_t cudaPeekAtLastError() {
  return last_error_of_thread(false);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (availability() != cudaSuccess) return remember(availability());
  *total = options().memory;
  *free = options().memory - memory_in_use(current_device());
  return cudaSuccess;
}

}  // extern "C"

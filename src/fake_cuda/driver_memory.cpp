// The driver's functions about memory, among them those by which memory is reserved, created and
// mapped apart from each other (PyTorch's expandable segments).
#include <cuda.h>

#include <mutex>
#include <unordered_map>

#include "fake_cuda/device.h"
#include "fake_cuda/memory.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

namespace {

constexpr std::size_t kGranularity = 2 << 20;

struct PhysicalAllocation {
  int device;
  std::size_t bytes;
  int mappings;
  bool released;
};

struct Handles {
  std::mutex mutex;
  std::unordered_map<CUmemGenericAllocationHandle, PhysicalAllocation> created;
  std::unordered_map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
  CUmemGenericAllocationHandle next = 1;
};

Handles& handles() {
  static auto* const only = new Handles;
  return *only;
}

void* pointer_of(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}
CUresult as_driver_result(cudaError_t error) {
  return static_cast<CUresult>(error);
}

// Memory that was created lives until it is neither held nor mapped.
void drop_if_unused(CUmemGenericAllocationHandle handle) {
  const auto found = handles().created.find(handle);
  if (found == handles().created.end() || !found->second.released || found->second.mappings > 0)
    return;
  refund(found->second.device, found->second.bytes);
  record(make_event(Kind::kFree, "cuMemRelease", nullptr, found->second.bytes));
  handles().created.erase(found);
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return as_driver_result(cudaMemGetInfo(free, total));
}

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  void* pointer = nullptr;
  const cudaError_t error = allocate_device(&pointer, bytes, "cuMemAlloc");
  *address = reinterpret_cast<CUdeviceptr>(pointer);
  return as_driver_result(error);
}

CUresult cuMemFree(CUdeviceptr address) {
  return as_driver_result(free_device(pointer_of(address), "cuMemFree"));
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return as_driver_result(cudaMemcpy(pointer_of(to), from, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return as_driver_result(cudaMemcpy(to, pointer_of(from), bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return as_driver_result(
      cudaMemcpyAsync(pointer_of(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return as_driver_result(
      cudaMemcpyAsync(to, pointer_of(from), bytes, cudaMemcpyDeviceToHost, stream));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return as_driver_result(
      cudaMemcpyAsync(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  return as_driver_result(cudaMemsetAsync(pointer_of(to), value, bytes, stream));
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  const Allocation allocation = allocation_of(pointer_of(address));
  if (allocation.base == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = reinterpret_cast<CUdeviceptr>(allocation.base);
  if (bytes != nullptr) *bytes = allocation.bytes;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const Allocation allocation = allocation_of(pointer_of(address));
  if (allocation.place == MemoryKind::kUnknown) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) =
          allocation.place == MemoryKind::kPinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = allocation.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                                             ? address
                                             : reinterpret_cast<CUdeviceptr>(allocation.base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = allocation.bytes;
      return CUDA_SUCCESS;
    default:
      record_unexpected("cuPointerGetAttribute, an attribute unknown here");
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  *address = reinterpret_cast<CUdeviceptr>(reserve_addresses(bytes));
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t) {
  release_addresses(pointer_of(address));
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int device = properties->location.id;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!charge(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  record(make_event(Kind::kMalloc, "cuMemCreate", nullptr, bytes));
  const std::lock_guard lock(handles().mutex);
  *handle = handles().next++;
  handles().created[*handle] = {device, bytes, 0, false};
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t, std::size_t,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().created.find(handle);
  if (found == handles().created.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.mappings;
  handles().mapped[address] = handle;
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(handles().mutex);
  for (CUdeviceptr at = address; at < address + bytes; at += kGranularity) {
    const auto mapped = handles().mapped.find(at);
    if (mapped == handles().mapped.end()) continue;
    const CUmemGenericAllocationHandle handle = mapped->second;
    handles().mapped.erase(mapped);
    --handles().created[handle].mappings;
    drop_if_unused(handle);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().created.find(handle);
  if (found == handles().created.end()) return CUDA_ERROR_INVALID_VALUE;
  found->second.released = true;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

}  // extern "C"

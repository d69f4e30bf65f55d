#include "fake_cuda/memory.h"

#include <sys/mman.h>

#include <array>
#include <map>
#include <mutex>

#include "fake_cuda/device.h"
#include "fake_cuda/record.h"
#include "fake_cuda/streams.h"

namespace octavo::fake_cuda {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<const char*, Allocation> allocations;  // by first byte
  std::array<std::size_t, 64> in_use{};           // bytes per device
};

Memory& memory() {
  static auto* const only = new Memory;  // never destroyed: others free in their own destructors
  return *only;
}

char* map_pages(std::size_t bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  // A small write must not make a huge page real: most of this memory is never meant to exist.
  if (!options().compute) madvise(base, bytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(base);
}

void add(const Allocation& allocation) {
  const std::lock_guard lock(memory().mutex);
  memory().allocations[allocation.base] = allocation;
}

// Takes the allocation that begins there out of the table.
Allocation take(const void* base) {
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().allocations.find(static_cast<const char*>(base));
  if (found == memory().allocations.end()) return {};
  const Allocation allocation = found->second;
  memory().allocations.erase(found);
  return allocation;
}

cudaError_t allocate_host(void** pointer, std::size_t bytes, MemoryKind place) {
  if (bytes == 0) {
    *pointer = nullptr;
    return cudaSuccess;
  }
  char* const base = map_pages(bytes);
  if (base == nullptr) return remember(cudaErrorMemoryAllocation);
  add({.base = base, .bytes = bytes, .device = current_device(), .place = place});
  record(make_event(Kind::kHostMalloc, "cudaHostAlloc", nullptr, bytes));
  *pointer = base;
  return cudaSuccess;
}

}  // namespace

Allocation allocation_of(const void* pointer) {
  const std::lock_guard lock(memory().mutex);
  auto after = memory().allocations.upper_bound(static_cast<const char*>(pointer));
  if (after == memory().allocations.begin()) return {};
  const Allocation& candidate = std::prev(after)->second;
  return static_cast<const char*>(pointer) < candidate.base + candidate.bytes ? candidate
                                                                              : Allocation{};
}

std::size_t memory_in_use(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().in_use[device];
}

bool charge(int device, std::size_t bytes) {
  {
    const std::lock_guard lock(memory().mutex);
    std::size_t& in_use = memory().in_use[device];
    if (bytes <= options().memory - in_use) {
      in_use += bytes;
      change_memory_in_use(static_cast<std::int64_t>(bytes));
      return true;
    }
  }
  count_out_of_memory();
  return false;
}

void refund(int device, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().in_use[device] -= bytes;
  change_memory_in_use(-static_cast<std::int64_t>(bytes));
}

cudaError_t allocate_device(void** pointer, std::size_t bytes, const char* entry) {
  *pointer = nullptr;
  if (availability() != cudaSuccess) return remember(availability());
  if (bytes == 0) return cudaSuccess;
  const int device = current_device();
  use_device(device);
  if (!charge(device, bytes)) return remember(cudaErrorMemoryAllocation);
  char* const base = map_pages(bytes);
  if (base == nullptr) {
    refund(device, bytes);
    say("no address space left for " + std::to_string(bytes) + " bytes");
    return remember(cudaErrorMemoryAllocation);
  }
  add({.base = base,
       .bytes = bytes,
       .device = device,
       .place = MemoryKind::kDevice,
       .counted = true});
  record(make_event(Kind::kMalloc, entry, nullptr, bytes));
  *pointer = base;
  return cudaSuccess;
}

cudaError_t free_device(void* pointer, const char* entry) {
  if (pointer == nullptr) {
    use_device(current_device());
    return cudaSuccess;
  }
  const Allocation allocation = take(pointer);
  if (allocation.place == MemoryKind::kUnknown) return remember(cudaErrorInvalidValue);
  munmap(allocation.base, allocation.bytes);
  if (allocation.counted) refund(allocation.device, allocation.bytes);
  record(make_event(Kind::kFree, entry, nullptr, allocation.bytes));
  return cudaSuccess;
}

void* allocate_variable(std::size_t bytes) {
  char* const base = map_pages(bytes);
  if (base != nullptr)
    add({.base = base, .bytes = bytes, .device = current_device(), .place = MemoryKind::kDevice});
  return base;
}

void* reserve_addresses(std::size_t bytes) {
  char* const base = map_pages(bytes);
  if (base != nullptr)
    add({.base = base, .bytes = bytes, .device = current_device(), .place = MemoryKind::kDevice});
  return base;
}

void release_addresses(void* base) {
  const Allocation allocation = take(base);
  if (allocation.base != nullptr) munmap(allocation.base, allocation.bytes);
}

}  // namespace octavo::fake_cuda

using namespace octavo::fake_cuda;

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (capture_forbids()) return remember(cudaErrorStreamCaptureUnsupported);
  return allocate_device(pointer, bytes, "cudaMalloc");
}

cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr && capture_forbids()) return remember(cudaErrorStreamCaptureUnsupported);
  return free_device(pointer, "cudaFree");
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
  return allocate_device(pointer, bytes, "cudaMallocAsync");
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t,
                                    cudaStream_t) {
  return allocate_device(pointer, bytes, "cudaMallocFromPoolAsync");
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  return free_device(pointer, "cudaFreeAsync");
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned) {
  return allocate_host(pointer, bytes, MemoryKind::kManaged);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate_host(pointer, bytes, MemoryKind::kPinned);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate_host(pointer, bytes, MemoryKind::kPinned);
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const Allocation allocation = take(pointer);
  if (allocation.place != MemoryKind::kPinned || allocation.registered)
    return remember(cudaErrorInvalidValue);
  munmap(allocation.base, allocation.bytes);
  record(make_event(Kind::kHostFree, "cudaFreeHost", nullptr, allocation.bytes));
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  if (allocation_of(pointer).place != MemoryKind::kUnknown) {
    return remember(cudaErrorHostMemoryAlreadyRegistered);
  }
  add({.base = static_cast<char*>(pointer),
       .bytes = bytes,
       .place = MemoryKind::kPinned,
       .registered = true});
  record(make_event(Kind::kHostMalloc, "cudaHostRegister", nullptr, bytes));
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  const Allocation allocation = take(pointer);
  if (!allocation.registered) return remember(cudaErrorHostMemoryNotRegistered);
  record(make_event(Kind::kHostFree, "cudaHostUnregister", nullptr, allocation.bytes));
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Allocation allocation = allocation_of(pointer);
  *attributes = {};
  attributes->device = allocation.device;
  switch (allocation.place) {
    case MemoryKind::kUnknown:
      attributes->type = cudaMemoryTypeUnregistered;
      break;
    case MemoryKind::kDevice:
      attributes->type = cudaMemoryTypeDevice;
      break;
    case MemoryKind::kPinned:
      attributes->type = cudaMemoryTypeHost;
      break;
    case MemoryKind::kManaged:
      attributes->type = cudaMemoryTypeManaged;
      break;
  }
  if (allocation.place == MemoryKind::kUnknown) {
    attributes->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  char* const address = allocation.base + (static_cast<const char*>(pointer) - allocation.base);
  attributes->devicePointer = address;
  if (allocation.place != MemoryKind::kDevice) attributes->hostPointer = address;
  return cudaSuccess;
}

}  // extern "C"

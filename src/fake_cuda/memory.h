// Device memory: address space of a bounded size that costs nothing until touched.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace octavo::fake_cuda {

enum class MemoryKind { kUnknown, kDevice, kPinned, kManaged };

struct Allocation {
  char* base = nullptr;
  std::size_t bytes = 0;
  int device = 0;
  MemoryKind place = MemoryKind::kUnknown;
  bool counted = false;     // against the device's size
  bool registered = false;  // the caller's own memory: never unmapped here
};

// The allocation around a pointer; place kUnknown when there is none.
Allocation allocation_of(const void* pointer);
std::size_t memory_in_use(int device);

cudaError_t allocate_device(void** pointer, std::size_t bytes, const char* entry);
cudaError_t free_device(void* pointer, const char* entry);
// Memory of a __device__ variable: real at once, not counted.
void* allocate_variable(std::size_t bytes);

// Parts of an allocation, for memory that is reserved, created and mapped in three calls
// (expandable segments).
void* reserve_addresses(std::size_t bytes);
void release_addresses(void* base);
bool charge(int device, std::size_t bytes);  // false: does not fit
void refund(int device, std::size_t bytes);

}  // namespace octavo::fake_cuda

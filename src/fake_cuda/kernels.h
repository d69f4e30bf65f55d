// Kernels and device variables, as programs register them, and what a launch must satisfy.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace octavo::fake_cuda {

struct Kernel {
  const char* name;  // readable; lives as long as the process
  std::size_t dynamic_shared_memory =
      49152;  // most that a launch may ask for; cudaFuncSetAttribute changes it
};

// The kernel behind a host function, or behind a handle that we gave out.
Kernel& find_kernel(const void* function_or_handle);
// A kernel from a module that was compiled while the program ran.
Kernel& make_kernel(const char* mangled);
std::string readable_name(const char* mangled);

void* address_of_variable(const void* symbol);  // null: not registered

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_memory;
};
cudaError_t launch(const Kernel& kernel, const LaunchShape& shape, cudaStream_t stream);
cudaError_t set_dynamic_shared_memory(Kernel& kernel, int bytes);

}  // namespace octavo::fake_cuda

// The driver's modules and launches: kernels that were compiled while the program ran (NVRTC,
// Triton).
#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "fake_cuda/device.h"
#include "fake_cuda/kernels.h"

using namespace octavo::fake_cuda;

namespace {

// One address stands for every module: there is nothing inside.
char module_stand_in;

Kernel& kernel_of(CUfunction function) {
  return find_kernel(function);
}

CUresult driver_launch(CUfunction function, const LaunchShape& shape, CUstream stream) {
  return static_cast<CUresult>(launch(kernel_of(function), shape, stream));
}

}  // namespace

extern "C" {

// Modules have nothing inside: a function is made when it is asked for.
CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = reinterpret_cast<CUmodule>(&module_stand_in);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule* module, const char* file) {
  return cuModuleLoadData(module, file);
}
CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = reinterpret_cast<CUfunction>(&make_kernel(name));
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<CUlibrary>(&module_stand_in);
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary) {
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  *kernel = reinterpret_cast<CUkernel>(&make_kernel(name));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, function);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = attributes.maxThreadsPerBlock;
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = attributes.numRegs;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = attributes.ptxVersion;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = attributes.binaryVersion;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = attributes.maxDynamicSharedSizeBytes;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  return static_cast<CUresult>(set_dynamic_shared_memory(kernel_of(function), value));
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads,
                                                     std::size_t shared_memory) {
  *blocks = blocks_per_multiprocessor(threads, shared_memory);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared_memory, CUstream stream, void**,
                        void**) {
  return driver_launch(function, {dim3(gx, gy, gz), dim3(bx, by, bz), shared_memory}, stream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
                                   unsigned bx, unsigned by, unsigned bz, unsigned shared_memory,
                                   CUstream stream, void**) {
  return driver_launch(function, {dim3(gx, gy, gz), dim3(bx, by, bz), shared_memory}, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void**, void**) {
  return driver_launch(function,
                       {dim3(c->gridDimX, c->gridDimY, c->gridDimZ),
                        dim3(c->blockDimX, c->blockDimY, c->blockDimZ), c->sharedMemBytes},
                       c->hStream);
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank,
                                void* address, const cuuint64_t*, const cuuint64_t* strides,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  bool aligned = reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  for (cuuint32_t i = 0; i + 1 < rank; ++i) aligned &= strides[i] % 16 == 0;
  if (!aligned) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

}  // extern "C"

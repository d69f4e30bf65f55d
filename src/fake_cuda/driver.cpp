// The CUDA driver's functions that programs here use besides the runtime: devices, contexts, and
// the table by which others find them. lib/fake_cuda/libcuda.so.1 is an empty library that leads to
// this one.
#include "fake_cuda/driver.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "fake_cuda/device.h"
#include "fake_cuda/record.h"

using namespace octavo::fake_cuda;

namespace {

// Results of both interfaces have the same numbers where both have them.
CUresult as_driver(cudaError_t error) {
  return static_cast<CUresult>(error);
}

// A context is a place in this array: one per device.
char contexts[64];
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(&contexts[device]);
}
int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) - contexts);
}

void* own_library() {
  static void* const handle = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&own_library), &info);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return handle;
}

}  // namespace

namespace octavo::fake_cuda {

// A function with a meaning comes before a stub, and the plain name before later versions of it:
// cuda.h renames to the version that is current, so that is the one that has been written.
void* find_driver_function(const std::string& name, int version) {
  if (name == "cuGetProcAddress" && version >= 12000)
    return reinterpret_cast<void*>(&cuGetProcAddress);
  void* stub = nullptr;
  for (const char* suffix : {"", "_v4", "_v3", "_v2"}) {
    void* const found = dlsym(own_library(), (name + suffix).c_str());
    if (found == nullptr) continue;
    if (!is_stub(name + suffix)) return found;
    if (stub == nullptr) stub = found;
  }
  return stub;
}

}  // namespace octavo::fake_cuda

extern "C" {

CUresult cuInit(unsigned) {
  return options().devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) {
  *version = options().driver;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = options().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, length, "%s", device_name().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  std::snprintf(uuid->bytes, sizeof uuid->bytes, "fake-gpu-%d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = device_attribute(attribute);
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = options().memory;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  use_device(device);
  *context = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = in_use(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = in_use(current_device()) ? context_of(current_device()) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_SUCCESS;
  if (!is_device(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  set_current_device(device_of(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return cuCtxSetCurrent(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  return context == nullptr ? CUDA_SUCCESS : cuCtxGetCurrent(context);
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  return as_driver(cudaDeviceSynchronize());
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  int device = 0;
  const cudaError_t error = cudaStreamGetDevice(handle, &device);
  *context = context_of(device);
  return as_driver(error);
}

CUresult cuStreamSynchronize(CUstream stream) {
  return as_driver(cudaStreamSynchronize(stream));
}

CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* status) {
  *function = find_driver_function(name, version);
  const bool found = *function != nullptr;
  if (!found) record_unexpected(strdup((std::string("cuGetProcAddress ") + name).c_str()));
  if (status != nullptr)
    *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  *function = find_driver_function(name, static_cast<int>(version));
  const bool found = *function != nullptr;
  if (!found) record_unexpected(strdup((std::string("cudaGetDriverEntryPoint ") + name).c_str()));
  if (status != nullptr)
    *status = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDA_VERSION, flags, status);
}

#undef cuGetProcAddress
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

}  // extern "C"

// Names and texts of errors, in the runtime's own words: the real library would look for a driver
// first.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "fake_cuda/record.h"

namespace {

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration",
     "__global__ function call is not configured"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const ErrorText& text_of(cudaError_t code) {
  static constexpr ErrorText kOther = {cudaErrorUnknown, "cudaErrorUnknown",
                                       "an error that the fake CUDA device has no words for"};
  for (const ErrorText& known : kErrors) {
    if (known.code == code) return known;
  }
  return kOther;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t code) {
  return text_of(code).name;
}
const char* cudaGetErrorString(cudaError_t code) {
  return text_of(code).text;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = text_of(static_cast<cudaError_t>(code)).name;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = text_of(static_cast<cudaError_t>(code)).text;
  return CUDA_SUCCESS;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Secret tables of the driver, by which the real runtime talks to it: saying success would make it
// read nothing.
CUresult cuGetExportTable(const void**, const CUuuid*) {
  octavo::fake_cuda::record_unexpected("cuGetExportTable");
  return CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"

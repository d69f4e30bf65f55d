#include "train/guards/failures.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace octavo::train {
namespace {

// CUDA's own numbers (driver_types.h), by which a restart on the same machine fails again.
constexpr std::array kComeAgain = {
    1,    // invalid value
    35,   // the driver is older than the runtime
    98,   // invalid device function
    100,  // no device
    209,  // no kernel image for this device
};
constexpr int kOutOfMemory = 2;

struct Sign {
  std::string_view text;
  Failure failure;
};
// In messages of errors that have no class of their own. The first that is found counts.
constexpr Sign kSigns[] = {
    {"CUBLAS_STATUS_INVALID_VALUE", Failure::kUnknown},
    {"CUBLAS_STATUS_NOT_SUPPORTED", Failure::kUnknown},
    {"CUDNN_STATUS_BAD_PARAM", Failure::kUnknown},
    {"CUDNN_STATUS_NOT_SUPPORTED", Failure::kUnknown},
    {"CUBLAS_STATUS_ALLOC_FAILED", Failure::kDeviceMemory},
    {"CUDA out of memory", Failure::kDeviceMemory},
    {"DefaultCPUAllocator: ", Failure::kHostMemory},
    {"NCCL error", Failure::kNetwork},
    {"CUBLAS_STATUS_", Failure::kDeviceFault},
    {"CUDNN_STATUS_", Failure::kDeviceFault},
    {"cuDNN error", Failure::kDeviceFault},
    {"CUDA driver error", Failure::kDeviceFault},
    {"CUDA error", Failure::kDeviceFault},
};

}  // namespace

Failure failure_of_torch(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return Failure::kDeviceMemory;
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return Failure::kNetwork;
  if (const auto* device = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    const int code = device->get_error_code();
    if (code == kOutOfMemory) return Failure::kDeviceMemory;
    return std::ranges::count(kComeAgain, code) > 0 ? Failure::kUnknown : Failure::kDeviceFault;
  }
  const std::string_view text = error.what_without_backtrace();
  for (const Sign& sign : kSigns)
    if (text.find(sign.text) != text.npos) return sign.failure;
  return Failure::kUnknown;
}

Failure failure_of_run(const std::exception& error) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) return failure_of_torch(*torch);
  return failure_of(error);
}

void fail_if_environment(const c10::Error& error) {
  const std::string what = error.what_without_backtrace();
  switch (failure_of_torch(error)) {
    case Failure::kUnknown:
      return;
    case Failure::kDeviceFault:
      fail_as(Failure::kDeviceFault, "train", "the GPU or its driver failed: ", what,
              "; look for Xid in dmesg and ECC errors in nvidia-smi -q; octavo launch "
              "--max_restarts starts again from the newest checkpoint");
    case Failure::kHostMemory:
      fail_as(Failure::kHostMemory, "train", "this machine's memory is full: ", what,
              "; lower batch_size or the ranks on this machine");
    case Failure::kNetwork:
      fail_as(Failure::kNetwork, "train", "ranks could not reach each other: ", what);
    default:
      fail_as(failure_of_torch(error), "train", what);
  }
}

}  // namespace octavo::train

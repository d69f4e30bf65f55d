// dist/nccl.h by libtorch's process group over NCCL.

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "engine/cuda/cuda_module.h"

// An older header compiles and then corrupts the heap: the options grew.
static_assert(NCCL_VERSION_CODE >= 23007, "NCCL's headers must be those of the wheel");

extern "C" __attribute__((visibility("default"))) void octavo_cuda_make_nccl(
    const void* store, int32_t rank, int32_t size, int32_t device, int64_t timeout_ms,
    const void* parent, int32_t color, void* made) {
  using c10d::ProcessGroupNCCL;
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(timeout_ms);
  if (parent != nullptr) {
    options->split_from = c10::dynamic_intrusive_pointer_cast<ProcessGroupNCCL>(
        *static_cast<const c10::intrusive_ptr<c10d::Backend>*>(parent));
    options->split_color = color;
  }
  auto group = c10::make_intrusive<ProcessGroupNCCL>(
      *static_cast<const c10::intrusive_ptr<c10d::Store>*>(store), rank, size, options);
  const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(device));
  group->setBoundDeviceId(gpu);
  group->eagerConnectSingleDevice(gpu);
  *static_cast<c10::intrusive_ptr<c10d::Backend>*>(made) = group;
}

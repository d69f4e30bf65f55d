#include "engine/own/library.h"

#include <ATen/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include "base/error.h"
#include "base/file.h"
#include "engine/devices.h"
#include "engine/own/own.h"
#include "kernels/host_kernels.h"

namespace octavo::engine::own {
namespace {

Library open_library() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&library), &info);
  const fs::path path = fs::path(info.dli_fname != nullptr ? info.dli_fname : "").parent_path() /
                        "liboctavo_kernels.so";
  std::error_code unreadable;
  if (!fs::exists(path, unreadable))
    return {nullptr, "our own CUDA kernels were not built: no nvcc was found then"};
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return {nullptr, str("our own CUDA kernels do not load: ", dlerror())};
  const auto all = reinterpret_cast<decltype(&octavo_kernels)>(dlsym(opened, "octavo_kernels"));
  if (all == nullptr)
    return {nullptr, "our own CUDA kernels are of another version; build them again"};
  return {all(), {}};
}

}  // namespace

const Library& library() {
  static const Library found = open_library();
  return found;
}

const OctavoKernels& found_kernels() {
  if (library().kernels == nullptr) fail(ExitCode::kEnvironment, "engine", library().problem);
  return *library().kernels;
}

std::string refusal(const Target& target) {
  if (!target.device.is_cuda()) return "runs on GPUs only";
  if (target.reference_only) return "only the reference was asked for";
  // A GPU without a capability is the one of the docs' table, which is the same on every machine.
  return target.capability == 0 ? std::string() : library().problem;
}

std::string refusal_but_bf16(const Target& target) {
  if (target.compute != at::kBFloat16) return "computes in BF16 only";
  return refusal(target);
}

void launch_for(const at::Tensor& tensor, const OctavoKernels& kernels, const char* what,
                const std::function<int32_t(const OctavoKernels&, void* stream)>& launch) {
  const at::Device device = tensor.device();
  const c10::DeviceGuard guard(device);
  void* stream = nullptr;
  if (device.is_cuda())
    stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const int32_t error = launch(kernels, stream);
  if (error != 0)
    fail(ExitCode::kEnvironment, "engine", "our CUDA kernel of ", what,
         " was not launched: CUDA's error ", error);
  if (computes_on_host(device)) launch(kernels::host_kernels(), nullptr);
}

}  // namespace octavo::engine::own

// The kernels on a device: nothing but launches. liboctavo_kernels.so.

#include <cuda_runtime.h>

#include "kernels/device_block.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

struct DeviceLauncher {
  void* stream;

  template <class Kernel>
  int32_t launch(int64_t blocks, const typename Kernel::Arguments& arguments) {
    if (blocks == 0) return 0;
    if (blocks > INT32_MAX) return kUnsupported;
    on_device<Kernel>
        <<<static_cast<unsigned>(blocks), Kernel::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
            arguments);
    return cudaGetLastError();
  }
};

int32_t adamw(const AdamWStorage& storage, const AdamWArguments& arguments, int64_t blocks,
              void* stream) {
  DeviceLauncher on{stream};
  return launch_adamw(on, storage, arguments, blocks);
}
int32_t cross_entropy(const CrossEntropyArguments& arguments, LossSums* total, void* stream) {
  DeviceLauncher on{stream};
  return launch_cross_entropy(on, arguments, total);
}
int32_t norm(bool is_layer_norm, const NormArguments& arguments, void* stream) {
  DeviceLauncher on{stream};
  return launch_norm(on, is_layer_norm, arguments);
}
int32_t norm_backward(bool is_layer_norm, const NormBackwardArguments& arguments, void* stream) {
  DeviceLauncher on{stream};
  return launch_norm_backward(on, is_layer_norm, arguments);
}
int32_t quantize(fp8::Format format, const QuantizeArguments& arguments, int64_t blocks,
                 void* stream) {
  DeviceLauncher on{stream};
  return launch_quantize(on, format, arguments, blocks);
}
int32_t rope(Stored stored, const RopeArguments& arguments, void* stream) {
  DeviceLauncher on{stream};
  return launch_rope(on, stored, arguments);
}
int32_t fp8_stats(fp8::Format format, const Fp8StatsArguments& arguments, double* stats,
                  void* stream) {
  DeviceLauncher on{stream};
  return launch_fp8_stats(on, format, arguments, stats);
}

}  // namespace
}  // namespace octavo::kernels

extern "C" const OctavoKernels* octavo_kernels() {
  using namespace octavo::kernels;
  static const OctavoKernels all = {adamw,    cross_entropy, norm,     norm_backward,
                                    quantize, rope,          fp8_stats};
  return &all;
}

#include "kernels/host_kernels.h"

#include "kernels/host_launch.h"

namespace octavo::kernels {

const OctavoKernels& host_kernels() {
  static const OctavoKernels all = {
      .adamw =
          [](const AdamWStorage& storage, const AdamWArguments& arguments, int64_t blocks, void*) {
            HostLauncher on;
            return launch_adamw(on, storage, arguments, blocks);
          },
      .cross_entropy =
          [](const CrossEntropyArguments& arguments, LossSums* total, void*) {
            HostLauncher on;
            return launch_cross_entropy(on, arguments, total);
          },
      .norm =
          [](bool is_layer_norm, const NormArguments& arguments, void*) {
            HostLauncher on;
            return launch_norm(on, is_layer_norm, arguments);
          },
      .norm_backward =
          [](bool is_layer_norm, const NormBackwardArguments& arguments, void*) {
            HostLauncher on;
            return launch_norm_backward(on, is_layer_norm, arguments);
          },
      .quantize =
          [](fp8::Format format, const QuantizeArguments& arguments, int64_t blocks, void*) {
            HostLauncher on;
            return launch_quantize(on, format, arguments, blocks);
          },
      .rope =
          [](Stored stored, const RopeArguments& arguments, void*) {
            HostLauncher on;
            return launch_rope(on, stored, arguments);
          },
      .fp8_stats =
          [](fp8::Format format, const Fp8StatsArguments& arguments, double* stats, void*) {
            HostLauncher on;
            return launch_fp8_stats(on, format, arguments, stats);
          },
  };
  return all;
}

}  // namespace octavo::kernels

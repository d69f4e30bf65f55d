#include "train/reporting/peaks.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "engine/devices.h"
#include "plan/gpu.h"
#include "train/lora_run.h"
#include "train/reporting/fp8_report.h"

namespace octavo::train {
monitor::Peaks peaks_of(const Run& run) {
  monitor::Peaks peaks{.flops_per_token = flops_per_token(run),
                       .fp8_share = fp8_share(gemm_lines(run))};
  const at::Device device = run.engine->target.device;
  if (!device.is_cuda() || engine::is_fake(device)) return peaks;
  const auto& gpus = engine::gpus().gpus;
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  const std::string name = index < gpus.size() ? gpus[index].name : "";
  const plan::Gpu* gpu = plan::gpu_of_device(name);
  if (gpu == nullptr) {
    log_info(octavo::str("no perf/mfu: octavo has no peak for '", name, "'"));
    return peaks;
  }
  peaks.bf16_per_second = gpu->bf16_tflops * 1e12 * run.world.size();
  peaks.fp8_per_second = gpu->fp8_tflops * 1e12 * run.world.size();
  return peaks;
}

}  // namespace octavo::train

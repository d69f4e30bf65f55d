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
monitor::Peaks peaks_of(const TrainedModel& trained, int64_t length, int ranks) {
  monitor::Peaks peaks{.flops_per_token = flops_per_token(trained, length),
                       .fp8_share = fp8_share(gemm_lines(trained, length))};
  const at::Device device = trained.device();
  if (!device.is_cuda() || !trained.has_numbers) return peaks;
  const auto& gpus = engine::gpus().gpus;
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  const std::string name = index < gpus.size() ? gpus[index].name : "";
  const plan::Gpu* gpu = plan::gpu_of_device(name);
  if (gpu == nullptr) {
    log_info(octavo::str("no perf/mfu: octavo has no peak for '", name, "'"));
    return peaks;
  }
  peaks.bf16_per_second = gpu->bf16_tflops * 1e12 * ranks;
  peaks.fp8_per_second = gpu->fp8_tflops * 1e12 * ranks;
  return peaks;
}

}  // namespace octavo::train

#include "plan/measured.h"

#include <algorithm>

#include "base/printed.h"
#include "plan/step_time.h"

namespace octavo::plan {

Calibration calibrated(const Calibration& calibration, const Gpu& gpu, const Measured& measured) {
  Calibration own = calibration;
  if (measured.bf16_rate == 1 && measured.fp8_rate == 1) return own;
  // All three by name: those of FP8 and of attention would follow BF16's.
  const auto scale = [&](const char* kind, double factor) {
    const std::string name = std::string(gpu.family) + kind;
    own.set(name, factor * calibration.of(name));
  };
  scale(".bf16", measured.bf16_rate);
  scale(".attention", 1);
  if (gpu.fp8_tflops > 0) scale(".fp8", measured.fp8_rate);
  return own;
}

Measured from_layer(const Gpu& gpu, double size, double bf16_seconds, double fp8_seconds) {
  Measured measured;
  const double flops = 6 * size * size * size;
  const auto one = [&](double seconds, bool fp8, const char* name) {
    const double expected = 3 * gemm_seconds(gpu, Calibration::fitted(), size, size, size, fp8);
    const auto rate = [&](double s) { return flops / s / 1e12; };
    measured.what += printed("%s%s %.0f TFLOP/s, forecast %.0f", measured.what.empty() ? "" : "; ",
                             name, rate(seconds), rate(expected));
    return expected / seconds;
  };
  if (bf16_seconds > 0) measured.bf16_rate = one(bf16_seconds, false, "BF16 GEMMs");
  if (fp8_seconds > 0 && gpu.fp8_tflops > 0)
    measured.fp8_rate = one(fp8_seconds, true, "FP8 GEMMs");
  return measured;
}

}  // namespace octavo::plan

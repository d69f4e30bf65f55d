#pragma once
// What was measured on the user's machine, as factors on the forecast, so that the next one is of
// that machine.

#include <string>

#include "plan/calibration.h"
#include "plan/gpu.h"

namespace octavo::plan {

struct Measured {
  std::string what;   // for people: what was measured, beside what was forecast; "": nothing
  double step = 1;    // seconds of a step over the forecast's
  double memory = 1;  // peak over the forecast's
  double bf16_rate = 1, fp8_rate = 1;  // of large GEMMs, over the forecast's

  bool is_given() const { return !what.empty(); }
};

// The constants with the measured rates of GEMMs in place of the family's.
Calibration calibrated(const Calibration& calibration, const Gpu& gpu, const Measured& measured);

// From seconds of a layer's three GEMMs (size x size x size each), as `octavo verify` times them;
// 0: not measured.
Measured from_layer(const Gpu& gpu, double size, double bf16_seconds, double fp8_seconds);

}  // namespace octavo::plan

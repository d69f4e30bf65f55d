#pragma once
// What quantizing did to a tensor, and when that is too much.

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "fp8/formats.h"

namespace octavo::fp8 {

struct TensorHealth {
  int64_t elements = 0, nonzero = 0;
  Incidents incidents;
  float amax = 0;    // of the numbers; infinity is one
  float factor = 0;  // the encode factor; of several, the one of the block with the amax
  double signal = 0, noise = 0;  // sums of squares: of the values, and of what quantizing changed

  TensorHealth& operator+=(const TensorHealth& other);
  double saturated_percent() const;    // of the elements
  double underflowed_percent() const;  // of the elements that are not zero
  double sqnr_db() const;              // 10 log10(signal / noise), at most 200
};

// The same as plain numbers, which a device can hold until the host reads all of a step at once:
// elements, nonzero, NaN, infinite, saturated, underflowed, amax, factor, signal, noise.
constexpr int64_t kHealthStats = 10;
std::array<double, kHealthStats> to_stats(const TensorHealth& health);
TensorHealth from_stats(std::span<const double, kHealthStats> stats);

// Beyond these a tensor is in trouble. From what a healthy run shows (docs/concepts/fp8-health.md):
// saturation is zero when a scale fits; E4M3 and E5M2 with a fitting scale give about 31 and 25 dB.
struct Limits {
  double saturated_percent = 1;
  double underflowed_percent = 50;
  double sqnr_db = 10;
};

// "" when healthy, else what is wrong, with the number and the limit.
std::string health_problem(const TensorHealth& health, const Limits& limits = {});

}  // namespace octavo::fp8

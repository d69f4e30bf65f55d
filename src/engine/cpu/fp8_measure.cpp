// Statistics of a quantized matrix: a pass of its own over what went in and what came out.

#include <array>
#include <cmath>

#include "engine/cpu/fp8_kernels.h"
#include "engine/cpu/parts.h"

namespace octavo::engine::cpu {
namespace {

// The smallest magnitude that rounds past the largest value. E4M3's tie, 464, goes down to 448;
// E5M2's, 61440, and E2M1's, 7, go up.
float first_saturated(fp8::Format format) {
  switch (format) {
    case fp8::Format::kE4M3:
      return std::nextafter(464.0f, 1e9f);
    case fp8::Format::kE5M2:
      return 61440.0f;
    case fp8::Format::kE2M1:
      break;
  }
  return 7;
}

struct Part {
  fp8::TensorHealth health;
  float amax_decode = 1;  // of the block with the amax
};

void add_element(Part& part, float x, float value, float decode, float limit) {
  fp8::TensorHealth& h = part.health;
  if (std::isnan(x)) {
    ++h.incidents.nan;
    ++h.nonzero;
    return;
  }
  const float magnitude = std::fabs(x);
  if (magnitude > h.amax || h.elements == 0) {
    h.amax = magnitude;
    part.amax_decode = decode;
  }
  h.nonzero += x != 0;
  if (std::isinf(x)) {
    ++h.incidents.inf;
    return;
  }
  // A factor of 0 or NaN is the doing of another value, which is counted itself.
  const float encode = fp8::scale_from_decode(decode).encode;
  // NVFP4's blocks may have a scale of 0: what is in them is lost below, not above.
  h.incidents.saturated += decode != 0 && magnitude * encode >= limit;
  h.incidents.underflowed += x != 0 && value == 0 && encode != 0;
  const double difference = static_cast<double>(x) - value;
  h.signal += static_cast<double>(x) * x;
  h.noise += difference * difference;
}

}  // namespace

fp8::TensorHealth measure(const Bf16Matrix& x, const uint16_t* values, const Fp8Scales& scales) {
  std::array<Part, kMaxParts> parts;
  const float limit = first_saturated(scales.format);
  for_parts(x.rows, x.columns, [&](int64_t index, int64_t first, int64_t end) {
    Part& part = parts[static_cast<size_t>(index)];
    for (int64_t r = first; r < end; ++r) {
      const float* decode = scales.decode + r / scales.grid.block_rows * scales.grid.grid_columns;
      for (int64_t c = 0; c < x.columns; ++c) {
        const float factor = decode[c / scales.grid.block_columns];
        const float value = from_bits(values[r * x.columns + c]);
        add_element(part, from_bits(x.row(r)[c]),
                    value * (scales.values_are_decoded ? scales.rest : factor), factor, limit);
        ++part.health.elements;
      }
    }
    part.health.factor = fp8::scale_from_decode(part.amax_decode).encode;
  });
  fp8::TensorHealth total;
  for (int64_t i = 0; i < part_count(x.rows); ++i) total += parts[static_cast<size_t>(i)].health;
  return total;
}

}  // namespace octavo::engine::cpu

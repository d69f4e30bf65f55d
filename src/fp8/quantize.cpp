#include "fp8/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::fp8 {

Incident incident_of(Format format, float value, const Scale& scale) {
  if (!std::isfinite(value)) return classify(format, value);
  const float scaled = value * scale.encode;
  if (std::isnan(scaled) || value == 0 || scale.encode == 0) return Incident::kNone;
  if (std::isinf(scaled)) return Incident::kSaturated;
  return scaled == 0 ? Incident::kUnderflowed : classify(format, scaled);
}

void Amax::add(float x) {
  if (std::isnan(x))
    has_nan = true;
  else
    value = std::max(value, std::fabs(x));
}

Quantization quantize(Recipe recipe, const Side& side, Direction direction, const Matrix& matrix,
                      float given) {
  OCTAVO_ASSERT(static_cast<int64_t>(matrix.values.size()) == matrix.rows * matrix.columns);
  Quantization result;
  result.side = side;
  result.grid = grid_of(side.granularity, direction, matrix.rows, matrix.columns);
  std::vector<Amax> amax(static_cast<size_t>(result.grid.count()));
  const auto each = [&](const auto& body) {
    for (int64_t r = 0; r < matrix.rows; ++r)
      for (int64_t c = 0; c < matrix.columns; ++c)
        body(static_cast<size_t>(r * matrix.columns + c),
             static_cast<size_t>(result.grid.block_of(r, c)));
  };
  each([&](size_t i, size_t block) {
    amax[block].add(matrix.values[i]);
    result.amax.add(matrix.values[i]);
  });
  for (const Amax& a : amax)
    result.scales.push_back(uses_history(recipe)
                                ? scale_from_factor(given)
                                : scale_from_amax(recipe, side.format, a.value, a.has_nan));
  result.codes.resize(matrix.values.size());
  each([&](size_t i, size_t block) {
    const float scaled = matrix.values[i] * result.scales[block].encode;
    result.codes[i] = encode(side.format, scaled);
    result.incidents.add(incident_of(side.format, matrix.values[i], result.scales[block]));
  });
  return result;
}

std::vector<float> dequantize(const Quantization& quantized, int64_t columns) {
  std::vector<float> values(quantized.codes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / columns, column = static_cast<int64_t>(i) % columns;
    values[i] = decode(quantized.side.format, quantized.codes[i]) *
                quantized.scales[static_cast<size_t>(quantized.grid.block_of(row, column))].decode;
  }
  return values;
}

}  // namespace octavo::fp8

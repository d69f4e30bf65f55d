#pragma once
// Quantizing a matrix by a recipe, in plain loops: the definition. The SIMD kernels of src/engine
// must give the same codes and scales, bit for bit.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8/recipe.h"

namespace octavo::fp8 {

// The largest magnitude among the numbers (infinity is one, NaN is not), as Transformer Engine's
// kernels take it, and whether there was a NaN.
struct Amax {
  float value = 0;
  bool has_nan = false;
  void add(float x);
};

// What encoding a value with a scale loses. Judged on the value, not on the product: float32 may
// overflow or underflow in it, and a scale of 0 or NaN is the doing of another value, which is
// counted itself.
Incident incident_of(Format format, float value, const Scale& scale);

struct Matrix {
  std::span<const float> values;  // row-major
  int64_t rows = 0, columns = 0;
};

struct Quantization {
  Side side;
  Grid grid;
  std::vector<uint8_t> codes;  // [rows, columns], not transposed, in both directions
  std::vector<Scale> scales;   // [grid_rows, grid_columns]
  Amax amax;                   // of the whole matrix
  Incidents incidents;
};

// `given`: the factor of delayed; not read by the other recipes.
Quantization quantize(Recipe recipe, const Side& side, Direction direction, const Matrix& matrix,
                      float given);

// What the codes stand for: value times decode, in FP32.
std::vector<float> dequantize(const Quantization& quantized, int64_t columns);

}  // namespace octavo::fp8

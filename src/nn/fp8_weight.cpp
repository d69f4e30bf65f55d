#include "nn/fp8_weight.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "engine/parallel.h"
#include "fp8/formats.h"

namespace octavo::nn {

namespace {

constexpr fp8::Format kFormat = fp8::Format::kE4M3;

// One row of blocks: the rows from `first` to `last` of the matrix.
struct BlockRow {
  int64_t first = 0, last = 0, columns = 0;
};

// The scale of one block from its largest magnitude. Below the smallest normal number a scale would
// lose digits, and such weights are nothing beside any other.
float scale_of(float amax) {
  return amax > 0 ? std::max(amax / fp8::max_value(kFormat), std::numeric_limits<float>::min())
                  : 1.0f;
}

// The largest magnitude in the band from column `left` to `right`; NaN when there is one.
float block_amax(const float* values, const BlockRow& band, int64_t left, int64_t right) {
  float amax = 0;
  for (int64_t r = band.first; r < band.last; ++r)
    for (int64_t c = left; c < right; ++c) {
      const float magnitude = std::fabs(values[r * band.columns + c]);
      if (!(magnitude <= amax)) amax = magnitude;
      if (std::isnan(amax)) return amax;
    }
  return amax;
}

BlockRow band_of(const at::Tensor& matrix, const Fp8Block& block, int64_t index) {
  const int64_t first = index * block.rows;
  return {first, std::min(first + block.rows, matrix.size(0)), matrix.size(1)};
}

// Calls body(index) for every row of blocks, on all threads.
template <typename Body>
void for_bands(int64_t bands, const Body& body) {
  engine::parallel_for(0, bands, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace

Fp8Weight quantize_weight(const at::Tensor& weight, const Fp8Block& block,
                          at::ScalarType scale_type, const std::string& name) {
  const at::Tensor source = weight.detach().to(at::kFloat).contiguous();
  OCTAVO_ASSERT(source.dim() == 2 && block.rows > 0 && block.columns > 0);
  const int64_t bands = ceil_div(source.size(0), block.rows),
                across = ceil_div(source.size(1), block.columns);
  const float* values = source.const_data_ptr<float>();
  at::Tensor amax = at::empty({bands, across}, at::kFloat);
  float* amax_data = amax.mutable_data_ptr<float>();
  for_bands(bands, [&](int64_t i) {
    for (int64_t j = 0; j < across; ++j)
      amax_data[i * across + j] = block_amax(values, band_of(source, block, i), j * block.columns,
                                             std::min((j + 1) * block.columns, source.size(1)));
  });
  for (int64_t k = 0; k < amax.numel(); ++k) {
    if (!std::isfinite(amax_data[k]))
      fail(ExitCode::kDamaged, "nn", "weight ", name, ": wanted finite numbers, found ",
           amax_data[k], "; the model is broken, take an earlier checkpoint");
    amax_data[k] = scale_of(amax_data[k]);
  }
  Fp8Weight made{at::empty(source.sizes(), at::kByte), amax.to(scale_type)};
  const at::Tensor scales = made.scales.to(at::kFloat);  // as a reader will see them
  const float* scale_data = scales.const_data_ptr<float>();
  auto* codes = made.codes.mutable_data_ptr<uint8_t>();
  for_bands(bands, [&](int64_t i) {
    const BlockRow band = band_of(source, block, i);
    for (int64_t r = band.first; r < band.last; ++r)
      for (int64_t c = 0; c < band.columns; ++c) {
        const int64_t at = r * band.columns + c;
        codes[at] = fp8::encode(kFormat, values[at] / scale_data[i * across + c / block.columns]);
      }
  });
  made.codes = made.codes.view(at::kFloat8_e4m3fn);
  return made;
}

at::Tensor dequantize_weight(const at::Tensor& codes, const at::Tensor& scales,
                             const Fp8Block& block, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  at::Tensor weight = codes.contiguous().view(at::kFloat8_e4m3fn).to(type);
  const int64_t rows = weight.size(0), columns = weight.size(1), bands = ceil_div(rows, block.rows),
                across = ceil_div(columns, block.columns);
  OCTAVO_ASSERT(scales.numel() == bands * across);
  // A row of factors for each band: the blocks' columns side by side.
  const at::Tensor factors = scales.to(at::kFloat)
                                 .reshape({bands, across})
                                 .repeat_interleave(block.columns, 1)
                                 .narrow(1, 0, columns);
  const int64_t whole = rows / block.rows;  // bands of full height
  weight.narrow(0, 0, whole * block.rows)
      .view({whole, block.rows, columns})
      .mul_(factors.narrow(0, 0, whole).unsqueeze(1));
  if (whole < bands)
    weight.narrow(0, whole * block.rows, rows - whole * block.rows).mul_(factors[whole]);
  return weight;
}

}  // namespace octavo::nn

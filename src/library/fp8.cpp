#include "library/octavo/fp8.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "engine/cpu/fp8_kernels.h"
#include "fp8/quantize.h"

namespace octavo::v0::fp8 {
namespace {

namespace own = octavo::fp8;

own::Format own_format(Format format) {
  return format == Format::kE4M3 ? own::Format::kE4M3 : own::Format::kE5M2;
}

own::Direction own_direction(Along along) {
  return along == Along::kRows ? own::Direction::kRow : own::Direction::kColumn;
}

struct Choice {
  own::Recipe recipe;
  own::Granularity granularity;
};
Choice choice_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::kTensor:
      return {own::recipe_with(own::ScaleRule::kTe), own::Granularity::kTensor};
    case Scaling::kRow:
      return {own::recipe_with(own::ScaleRule::kTorchaoPowerOfTwo), own::Granularity::kVector};
    case Scaling::kBlock128:
      return {own::recipe_with(own::ScaleRule::kTePowerOfTwo), own::Granularity::kBlock128};
    case Scaling::kSquare128:
      return {own::recipe_with(own::ScaleRule::kTePowerOfTwo), own::Granularity::kSquare128};
    case Scaling::kMx32:
      return {own::recipe_with(own::ScaleRule::kE8m0Ceil), own::Granularity::kBlock32};
  }
  fail(ExitCode::kUsage, "fp8", "wanted a scaling of octavo/fp8.h, found number ",
       static_cast<int>(scaling));
}

void check_size(size_t found, int64_t rows, int64_t columns) {
  if (rows < 1 || columns < 1)
    fail(ExitCode::kUsage, "fp8", "wanted a matrix of at least 1 x 1, found ", rows, " x ",
         columns);
  const int64_t wanted = checked_mul(rows, columns, "rows times columns");
  if (found != static_cast<size_t>(wanted))
    fail(ExitCode::kUsage, "fp8", "wanted ", wanted, " values for ", rows, " x ", columns,
         ", found ", found);
}

Quantized empty_copy(Format format, const own::Grid& grid, int64_t rows, int64_t columns) {
  return {.format = format,
          .rows = rows,
          .columns = columns,
          .block_rows = grid.block_rows,
          .block_columns = grid.block_columns,
          .grid_rows = grid.grid_rows,
          .grid_columns = grid.grid_columns,
          .codes = {},
          .scales = {}};
}

}  // namespace

uint8_t encode(Format format, float value) {
  return own::encode(own_format(format), value);
}
uint8_t encode_stochastic(Format format, float value, uint32_t random_bits) {
  return own::encode_stochastic(own_format(format), value, random_bits);
}
float decode(Format format, uint8_t code) {
  return own::decode(own_format(format), code);
}
float max_value(Format format) {
  return own::max_value(own_format(format));
}

Quantized quantize(std::span<const float> values, int64_t rows, int64_t columns, Scaling scaling,
                   Format format, Along along) {
  check_size(values.size(), rows, columns);
  const Choice choice = choice_of(scaling);
  own::Quantization made =
      own::quantize(choice.recipe, {own_format(format), choice.granularity}, own_direction(along),
                    {values, rows, columns}, /*given=*/1);
  Quantized result = empty_copy(format, made.grid, rows, columns);
  result.codes = std::move(made.codes);
  for (const own::Scale& scale : made.scales) result.scales.push_back(scale.decode);
  return result;
}

Quantized quantize_bf16(std::span<const uint16_t> bits, int64_t rows, int64_t columns,
                        Scaling scaling, Format format, Along along) {
  namespace cpu = octavo::engine::cpu;
  check_size(bits.size(), rows, columns);
  const Choice choice = choice_of(scaling);
  const own::Side side{own_format(format), choice.granularity};
  const own::Direction direction = own_direction(along);
  Quantized result =
      empty_copy(format, grid_of(side.granularity, direction, rows, columns), rows, columns);
  result.codes.resize(bits.size());
  const cpu::Bf16Matrix x{bits.data(), rows, columns};
  const cpu::Fp8Target target{side, result.codes.data(), nullptr};
  if (side.granularity == own::Granularity::kTensor) {
    const uint16_t largest = cpu::largest_bits(x);
    constexpr uint16_t kInfinity = 0x7F80;
    const own::Scale scale =
        scale_from_amax(choice.recipe, side.format, cpu::amax_of_numbers(x, largest),
                        /*has_nan=*/largest > kInfinity);
    cpu::quantize_by_factor(x, scale.encode, target);
    result.scales = {scale.decode};
    return result;
  }
  result.scales.resize(static_cast<size_t>(result.grid_rows * result.grid_columns));
  cpu::quantize_blocks(x, choice.recipe, direction, target, result.scales.data());
  return result;
}

std::vector<float> dequantize(const Quantized& q) {
  check_size(q.codes.size(), q.rows, q.columns);
  if (q.block_rows < 1 || q.block_columns < 1 ||
      q.grid_rows != (q.rows + q.block_rows - 1) / q.block_rows ||
      q.grid_columns != (q.columns + q.block_columns - 1) / q.block_columns)
    fail(ExitCode::kUsage, "fp8", "wanted a grid of blocks that covers ", q.rows, " x ", q.columns,
         ", found ", q.grid_rows, " x ", q.grid_columns, " of ", q.block_rows, " x ",
         q.block_columns);
  if (q.scales.size() != static_cast<size_t>(q.grid_rows * q.grid_columns))
    fail(ExitCode::kUsage, "fp8", "wanted ", q.grid_rows * q.grid_columns, " scales, found ",
         q.scales.size());
  std::vector<float> values(q.codes.size());
  for (int64_t r = 0; r < q.rows; ++r)
    for (int64_t c = 0; c < q.columns; ++c) {
      const auto i = static_cast<size_t>(r * q.columns + c);
      const auto block =
          static_cast<size_t>(r / q.block_rows * q.grid_columns + c / q.block_columns);
      values[i] = decode(q.format, q.codes[i]) * q.scales[block];
    }
  return values;
}

}  // namespace octavo::v0::fp8

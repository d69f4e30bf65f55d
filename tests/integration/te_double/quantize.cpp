// Quantizing, and where codes and scales lie.

#include <transformer_engine/cast.h>
#include <transformer_engine/recipe.h>
#include <transformer_engine/swizzle.h>
#include <transformer_engine/transpose.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "configs.h"
#include "fp8/quantize.h"
#include "te_double.h"

namespace te_double {
namespace {

using octavo::engine::Fp8Copy;
using octavo::fp8::Format;
using octavo::fp8::Granularity;
using octavo::fp8::Grid;
using octavo::fp8::Recipe;
using octavo::fp8::Side;

int64_t up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

bool transposes(NVTEScalingMode mode) {
  return mode != NVTE_MXFP8_1D_SCALING;
}

Granularity granularity_of(NVTEScalingMode mode) {
  switch (mode) {
    case NVTE_MXFP8_1D_SCALING:
      return Granularity::kBlock32;
    case NVTE_BLOCK_SCALING_1D:
      return Granularity::kBlock128;
    case NVTE_BLOCK_SCALING_2D:
      return Granularity::kSquare128;
    default:
      return Granularity::kTensor;
  }
}

// A scale tensor and the place in it of the scale (r, c) of the grid.
struct Scales {
  const Tensor& t;
  bool column;
  Sizes sizes;

  const NVTEBasicTensor& basic() const {
    return t.of(column ? kNVTEColumnwiseScaleInv : kNVTERowwiseScaleInv);
  }
  // [first, second], as the library documents it.
  std::pair<int64_t, int64_t> shape() const {
    const auto [m, k] = sizes;
    switch (t.mode) {
      case NVTE_MXFP8_1D_SCALING:
        return column ? std::pair(up(ceil_div(m, 32), 4), up(k, 128))
                      : std::pair(up(m, 128), up(ceil_div(k, 32), 4));
      case NVTE_BLOCK_SCALING_1D:
        return column ? std::pair(ceil_div(m, 128), up(k, 4))
                      : std::pair(ceil_div(k, 128), up(m, 4));
      case NVTE_BLOCK_SCALING_2D:
        return column ? std::pair(ceil_div(k, 128), up(ceil_div(m, 128), 4))
                      : std::pair(ceil_div(m, 128), up(ceil_div(k, 128), 4));
      default:
        return {1, 1};
    }
  }
  int64_t place(int64_t r, int64_t c) const {
    const auto [first, second] = shape();
    switch (t.mode) {
      case NVTE_BLOCK_SCALING_1D:
        return column ? r * second + c : c * second + r;
      case NVTE_BLOCK_SCALING_2D:
        return column ? c * second + r : r * second + c;
      case NVTE_MXFP8_1D_SCALING: {
        // Tiles of 128 x 4 scales, one after the other along the sum; in a tile 32 rows of 16
        // bytes, each with the four scales of rows i, i + 32, i + 64 and i + 96.
        const int64_t i = column ? c : r, j = column ? r : c;
        const int64_t tiles = (column ? first : second) / 4;
        const int64_t tile = i / 128 * tiles + j / 4;
        return tile * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
      }
      default:
        return 0;
    }
  }
  void check_shape() const {
    const auto [first, second] = shape();
    const NVTEShape& s = basic().shape;
    const size_t count = s.ndim == 0 ? 0 : s.data[0] * (s.ndim > 1 ? s.data[1] : 1);
    if (t.mode == NVTE_DELAYED_TENSOR_SCALING)
      check(count == 1, "wanted one scale");
    else
      check(s.ndim == 2 && static_cast<int64_t>(s.data[0]) == first &&
                static_cast<int64_t>(s.data[1]) == second,
            "scales of a wrong shape");
    check(basic().data_ptr != nullptr, "no room for scales");
    check(t.mode != NVTE_MXFP8_1D_SCALING || (t.swizzled && basic().dtype == kNVTEFloat8E8M0),
          "wanted swizzled E8M0 scales");
  }
};

Recipe recipe_of(NVTEScalingMode mode) {
  if (mode == NVTE_MXFP8_1D_SCALING) return Recipe::kMxfp8;
  return mode == NVTE_DELAYED_TENSOR_SCALING ? Recipe::kDelayed : Recipe::kBlockwise;
}

void write_copy(const at::Tensor& values, Tensor& out, bool column) {
  const Sizes sizes = sizes_of(out);
  check(values.size(0) == sizes.rows && values.size(1) == sizes.columns,
        "input and output have different shapes");
  const at::Tensor floats = values.to(at::kFloat).contiguous();
  const bool per_tensor = out.mode == NVTE_DELAYED_TENSOR_SCALING;
  const auto made = octavo::fp8::quantize(
      recipe_of(out.mode), {format_of(out), granularity_of(out.mode)},
      column ? Direction::kColumn : Direction::kRow,
      {std::span(floats.const_data_ptr<float>(), static_cast<size_t>(floats.numel())), sizes.rows,
       sizes.columns},
      per_tensor ? *number(out, kNVTEScale) : 1.0f);

  const NVTEBasicTensor& data = out.of(column ? kNVTEColumnwiseData : kNVTERowwiseData);
  auto* codes = static_cast<uint8_t*>(data.data_ptr);
  if (column)
    column_codes().insert(codes);
  else
    column_codes().erase(codes);
  const bool transposed = column && transposes(out.mode);
  for (int64_t r = 0; r < sizes.rows; ++r)
    for (int64_t c = 0; c < sizes.columns; ++c)
      codes[transposed ? c * sizes.rows + r : r * sizes.columns + c] =
          made.codes[static_cast<size_t>(r * sizes.columns + c)];

  const Scales scales{out, column, sizes};
  scales.check_shape();
  const auto [first, second] = scales.shape();
  const bool bytes = out.mode == NVTE_MXFP8_1D_SCALING;
  std::memset(scales.basic().data_ptr, 0, static_cast<size_t>(first * second) * (bytes ? 1 : 4));
  for (int64_t r = 0; r < made.grid.grid_rows; ++r)
    for (int64_t c = 0; c < made.grid.grid_columns; ++c) {
      const float decode = made.scales[static_cast<size_t>(r * made.grid.grid_columns + c)].decode;
      if (bytes)
        static_cast<uint8_t*>(scales.basic().data_ptr)[scales.place(r, c)] =
            octavo::fp8::encode_e8m0_up(decode);
      else
        static_cast<float*>(scales.basic().data_ptr)[scales.place(r, c)] = decode;
    }
  if (per_tensor && out.has(kNVTEAmax)) {
    float* amax = number(out, kNVTEAmax);
    *amax = std::fmax(*amax, made.amax.value);
  }
}

}  // namespace

std::set<const void*>& column_codes() {
  static std::set<const void*> made;
  return made;
}

Sizes sizes_of(const Tensor& t) {
  const bool row = t.has(kNVTERowwiseData);
  const NVTEShape& s = t.of(row ? kNVTERowwiseData : kNVTEColumnwiseData).shape;
  check(s.ndim == 2, "wanted a matrix");
  const auto first = static_cast<int64_t>(s.data[0]), second = static_cast<int64_t>(s.data[1]);
  return row || !transposes(t.mode) ? Sizes{first, second} : Sizes{second, first};
}

Format format_of(const Tensor& t) {
  const NVTEDType type =
      t.of(t.has(kNVTERowwiseData) ? kNVTERowwiseData : kNVTEColumnwiseData).dtype;
  check(type == kNVTEFloat8E4M3 || type == kNVTEFloat8E5M2, "wanted FP8");
  return type == kNVTEFloat8E4M3 ? Format::kE4M3 : Format::kE5M2;
}

void quantize(const at::Tensor& values, Tensor& out) {
  const bool row = out.has(kNVTERowwiseData), column = out.has(kNVTEColumnwiseData);
  check(row || column, "no room for an output");
  switch (out.mode) {
    case NVTE_DELAYED_TENSOR_SCALING:
      check(row, "quantizing in the column direction alone is not supported");
      check(!column ||
                out.of(kNVTERowwiseScaleInv).data_ptr == out.of(kNVTEColumnwiseScaleInv).data_ptr,
            "both copies must share their scale");
      break;
    case NVTE_MXFP8_1D_SCALING:
      check(capability() >= 100, "mxfp8 below compute capability 10.0 would write nothing");
      break;
    case NVTE_BLOCK_SCALING_2D:
      check(row, "squares are written with their row copy");
      break;
    default:
      break;
  }
  if (row) write_copy(values, out, false);
  if (column) write_copy(values, out, true);
}

void put(const at::Tensor& values, Tensor& out) {
  if (out.is_fp8())
    quantize(values, out);
  else
    view(out.of(kNVTERowwiseData)).copy_(values);
}

Fp8Matrix read_copy(const Tensor& t, bool column_storage, Direction direction) {
  const Sizes sizes = sizes_of(t);
  const NVTEBasicTensor& data = t.of(column_storage ? kNVTEColumnwiseData : kNVTERowwiseData);
  check(data.data_ptr != nullptr,
        column_storage ? "input is missing column-wise usage" : "input is missing row-wise usage");
  const Side side{format_of(t), granularity_of(t.mode)};
  const Scales scales{t, column_storage, sizes};
  scales.check_shape();
  const Grid grid = octavo::fp8::grid_of(side.granularity, direction, sizes.rows, sizes.columns);
  at::Tensor decode = at::empty({grid.count()}, at::kFloat);
  for (int64_t r = 0; r < grid.grid_rows; ++r)
    for (int64_t c = 0; c < grid.grid_columns; ++c) {
      const int64_t place = scales.place(r, c);
      decode.mutable_data_ptr<float>()[r * grid.grid_columns + c] =
          t.mode == NVTE_MXFP8_1D_SCALING
              ? octavo::fp8::decode_e8m0(static_cast<uint8_t*>(scales.basic().data_ptr)[place])
              : static_cast<float*>(scales.basic().data_ptr)[place];
    }
  const at::Tensor stored = view(data);
  const bool transposed = column_storage && transposes(t.mode);
  const Fp8Copy copy{.codes = transposed ? stored.t().contiguous() : stored.clone(),
                     .scales = decode,
                     .values = {}};
  Fp8Matrix matrix{.rows = sizes.rows,
                   .columns = sizes.columns,
                   .row_side = side,
                   .column_side = side,
                   .row = {},
                   .column = {}};
  (direction == Direction::kRow ? matrix.row : matrix.column) = copy;
  return matrix;
}

void to_blocks_of_32(const Tensor& in, Tensor& out) {
  check(in.mode == NVTE_BLOCK_SCALING_1D || in.mode == NVTE_BLOCK_SCALING_2D, "no blocks of 128");
  check(out.mode == NVTE_MXFP8_1D_SCALING, "no room for blocks of 32");
  check(in.of(kNVTERowwiseData).data_ptr != nullptr &&
            in.of(kNVTERowwiseData).data_ptr == out.of(kNVTERowwiseData).data_ptr,
        "both must share their row codes");
  const Sizes sizes = sizes_of(in);
  check(in.mode == NVTE_BLOCK_SCALING_2D || sizes.rows % 4 == 0, "rows that are no multiple of 4");
  const Scales from{in, false, sizes}, to{out, false, sizes};
  from.check_shape();
  to.check_shape();
  const auto [first, second] = to.shape();
  auto* bytes = static_cast<uint8_t*>(to.basic().data_ptr);
  std::memset(bytes, 0, static_cast<size_t>(first * second));
  for (int64_t r = 0; r < sizes.rows; ++r)
    for (int64_t c = 0; c < ceil_div(sizes.columns, 32); ++c) {
      const int64_t row = in.mode == NVTE_BLOCK_SCALING_2D ? r / 128 : r;
      const float decode = static_cast<float*>(from.basic().data_ptr)[from.place(row, c / 4)];
      bytes[to.place(r, c)] = static_cast<uint8_t>(std::bit_cast<uint32_t>(decode) >> 23);
    }
}

}  // namespace te_double

using te_double::check;
using te_double::count_call;
using te_double::number;
using te_double::tensor;

extern "C" {

void nvte_quantize_v2(const NVTETensor input, NVTETensor output,
                      const NVTEQuantizationConfig config, cudaStream_t /*stream*/) {
  count_call("nvte_quantize_v2");
  auto& out = tensor(output);
  if (out.is_fp4()) {
    check(config != nullptr, "wanted a configuration");
    te_double::quantize_nvfp4(te_double::view(input), out,
                              *static_cast<te_double::QuantizationConfig*>(config));
    return;
  }
  const bool pow2 =
      config != nullptr && static_cast<te_double::QuantizationConfig*>(config)->power_of_two_scales;
  const bool in_blocks_of_128 =
      out.mode == NVTE_BLOCK_SCALING_1D || out.mode == NVTE_BLOCK_SCALING_2D;
  check(pow2 || !in_blocks_of_128, "the stand-in has power-of-two scales only for blocks of 128");
  te_double::quantize(te_double::view(input), out);
}

void nvte_multi_cast_transpose(size_t count, const NVTETensor* inputs, NVTETensor* outputs,
                               cudaStream_t /*stream*/) {
  count_call("nvte_multi_cast_transpose");
  for (size_t i = 0; i < count; ++i) {
    auto& out = tensor(outputs[i]);
    check(out.mode == NVTE_DELAYED_TENSOR_SCALING && out.has(kNVTERowwiseData) &&
              out.has(kNVTEColumnwiseData),
          "wanted both copies, of one scale per tensor");
    te_double::quantize(te_double::view(inputs[i]), out);
  }
}

void nvte_compute_amax_with_config(const NVTETensor input, NVTETensor output,
                                   const NVTEQuantizationConfig /*config*/,
                                   cudaStream_t /*stream*/) {
  count_call("nvte_compute_amax_with_config");
  const at::Tensor values = te_double::view(input).to(at::kFloat).contiguous();
  octavo::fp8::Amax amax;
  for (int64_t i = 0; i < values.numel(); ++i) amax.add(values.const_data_ptr<float>()[i]);
  *number(tensor(output), kNVTEAmax) = amax.value;
}

void nvte_compute_scale_from_amax(NVTETensor output, const NVTEQuantizationConfig config,
                                  cudaStream_t /*stream*/) {
  count_call("nvte_compute_scale_from_amax");
  check(config != nullptr, "wanted a configuration");
  auto& out = tensor(output);
  *number(out, kNVTEScale) =
      octavo::fp8::scale_from_amax(octavo::fp8::Recipe::kCurrent, te_double::format_of(out),
                                   *number(out, kNVTEAmax), false)
          .encode;
}

void nvte_transpose(const NVTETensor input, NVTETensor output, cudaStream_t /*stream*/) {
  count_call("nvte_transpose");
  const NVTEBasicTensor &from = tensor(input).of(kNVTERowwiseData),
                        &to = tensor(output).of(kNVTERowwiseData);
  check(from.shape.ndim == 2 && to.shape.ndim == 2 && from.shape.data[0] == to.shape.data[1] &&
            from.shape.data[1] == to.shape.data[0] && from.dtype == to.dtype &&
            from.dtype == kNVTEFloat8E4M3,
        "wanted a matrix of codes and room for its transpose");
  const size_t rows = from.shape.data[0], columns = from.shape.data[1];
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c)
      static_cast<uint8_t*>(to.data_ptr)[c * rows + r] =
          static_cast<const uint8_t*>(from.data_ptr)[r * columns + c];
}

// Scales of blocks of 128 as those of blocks of 32, for GEMMs from compute capability 10.0 on.
void nvte_swizzle_block_scaling_to_mxfp8_scaling_factors(const NVTETensor input, NVTETensor output,
                                                         cudaStream_t /*stream*/) {
  count_call("nvte_swizzle_block_scaling_to_mxfp8_scaling_factors");
  te_double::to_blocks_of_32(tensor(input), tensor(output));
}

// The library's own formula for one history: every slot rolls, also one that saw nothing.
void nvte_delayed_scaling_recipe_amax_and_scale_update(const NVTETensor amax_history,
                                                       const NVTETensor scale,
                                                       NVTETensor updated_amax_history,
                                                       NVTETensor updated_scale,
                                                       const char* algorithm, NVTEDType type,
                                                       float margin, cudaStream_t /*stream*/) {
  count_call("nvte_delayed_scaling_recipe_amax_and_scale_update");
  const at::Tensor history = te_double::view(amax_history).clone(),
                   old = te_double::view(scale).clone();
  at::Tensor rolled = te_double::view(updated_amax_history), made = te_double::view(updated_scale);
  const int64_t length = history.size(0), slots = history.size(1);
  const auto* from = history.const_data_ptr<float>();
  auto* to = rolled.mutable_data_ptr<float>();
  const float largest_value = (type == kNVTEFloat8E4M3 ? 448.0f : 57344.0f) * std::exp2(-margin);
  for (int64_t slot = 0; slot < slots; ++slot) {
    const float newest = from[slot];
    float largest = 0;
    for (int64_t i = 0; i < length; ++i) {
      const float a = i + 1 < length ? from[(i + 1) * slots + slot] : newest;
      largest = std::fmax(largest, a);
      to[i * slots + slot] = i > 0 ? a : 0;
    }
    const float amax = std::string(algorithm) == "max" ? largest : newest;
    float factor =
        std::isfinite(amax) && amax > 0 ? largest_value / amax : old.const_data_ptr<float>()[slot];
    if (std::isinf(factor)) factor = std::numeric_limits<float>::max();
    made.mutable_data_ptr<float>()[slot] = factor;
  }
}

}  // extern "C"

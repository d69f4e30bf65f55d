#include "engine/te/nvfp4.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "engine/te/quantizer.h"

namespace octavo::engine::te {
namespace {

using at::Tensor;
using fp8::Direction;
using fp8::Granularity;

// A copy that is being made.
struct Made {
  Fp8Copy copy;
  Layout layout;
  Tensor compact;  // block scales as the quantizing kernel writes them
  Nvfp4Scales scales;
};

Made room_for(const fp8::Side& side, Direction direction, const Fp8Matrix& matrix,
              const OnDevice& on) {
  Made made;
  made.layout = layout_of(side, direction, matrix.rows, matrix.columns, on.facts);
  made.copy = allocate_copy(made.layout, on.device);
  made.scales = nvfp4_scales(made.copy, made.layout);
  made.compact = at::empty(made.layout.blocks, made.copy.scales.options());
  return made;
}

void describe(Handle& handle, const Made& made, const CopyParams& params) {
  describe_nvfp4(handle, {made.copy.codes, made.compact, made.scales.amax}, params);
}

void swizzle(const Made& made, const OnDevice& on) {
  const auto scales_alone = [&](const Tensor& scales) {
    Handle handle(made.layout.mode);
    handle.set(kNVTERowwiseData, nullptr, kNVTEFloat4E2M1,
               {made.copy.codes.size(0), 2 * made.copy.codes.size(1)});
    handle.set(kNVTERowwiseScaleInv, scales, kNVTEFloat8E4M3);
    return handle;
  };
  const Handle compact = scales_alone(made.compact);
  Handle swizzled = scales_alone(made.scales.blocks);
  swizzled.set_swizzled();
  library().nvte_swizzle_scaling_factors(compact, swizzled, on.stream);
}

// The largest magnitudes to where the copies keep them.
void find_amaxes(const Tensor& x, const Made* row, const Made* column, bool rotate,
                 const OnDevice& on) {
  const Handle in(x);
  Handle out(NVTE_NVFP4_1D_SCALING);
  if (rotate) {
    if (row != nullptr) out.set(kNVTEAmax, row->scales.amax, kNVTEFloat32);
    if (column != nullptr) out.set(kNVTEColumnwiseAmax, column->scales.amax, kNVTEFloat32);
    library().nvte_hadamard_transform_amax(in, out, 0, kHadamardSigns, on.stream);
    return;
  }
  out.set(kNVTEAmax, (row != nullptr ? row : column)->scales.amax, kNVTEFloat32);
  library().nvte_compute_amax_with_config(in, out, nullptr, on.stream);
  if (row != nullptr && column != nullptr) {
    Tensor same = column->scales.amax;
    same.copy_(row->scales.amax);
  }
}

}  // namespace

Tensor rotated_transposed(const Tensor& x, const OnDevice& on) {
  Tensor made = at::empty({x.size(1), x.size(0)}, x.options());
  if (x.numel() == 0) return made;
  library().nvte_hadamard_transform(Handle(x), Handle(made), 0, kHadamardSigns, on.stream);
  return made;
}

// {seed, stream} on the device in one launch, without a copy from the host, which would wait.
Tensor Nvfp4Quantizer::draws(const fp8::Nvfp4Rounding& rounding, at::Device device) {
  Seed& seed = seeds_[{device.has_index() ? device.index() : at::DeviceIndex{0}, rounding.seed}];
  if (!seed.seed.defined()) {
    Tensor words = at::zeros({2}, at::kLong);
    words.mutable_data_ptr<int64_t>()[1] = 1;
    seed.second = words.to(device);
    words = at::zeros({2}, at::kLong);
    words.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(rounding.seed);
    seed.seed = words.to(device);
  }
  return at::add(seed.seed, seed.second, static_cast<int64_t>(rounding.stream));
}

Fp8Matrix Nvfp4Quantizer::quantize(const Tensor& x, fp8::Recipe recipe, const QuantizeSpec& row,
                                   const QuantizeSpec& column) {
  Fp8Matrix matrix = matrix_for(x, row, column);
  if (!row.wanted && !column.wanted) return matrix;
  const OnDevice on(x);
  check_quantizable(x, recipe, on);
  check_shape({x.size(0), x.size(1)}, recipe, row, column);
  std::optional<Made> rows, columns;
  if (row.wanted) rows = room_for(row.side, Direction::kRow, matrix, on);
  if (column.wanted) columns = room_for(column.side, Direction::kColumn, matrix, on);
  OCTAVO_ASSERT(!row.rotate);
  const bool rotate = column.wanted && column.rotate;
  const auto run = [&](const Tensor& from, Handle& to, const QuantizeSpec& order) {
    const bool squares = order.side.granularity == Granularity::kSquare16;
    const Tensor state = order.rounding.stochastic ? draws(order.rounding, on.device) : Tensor();
    const QuantizationConfig config(squares, state);
    library().nvte_quantize_v2(Handle(from), to, config, on.stream);
  };
  const CopyParams as_row{kNVTERowwiseData, kNVTERowwiseScaleInv},
      as_column{kNVTEColumnwiseData, kNVTEColumnwiseScaleInv};
  if (x.numel() > 0) {
    find_amaxes(x, rows ? &*rows : nullptr, columns ? &*columns : nullptr, rotate, on);
    Handle out(NVTE_NVFP4_1D_SCALING);
    // Draws are of one copy: stochastic copies are made one by one, as rotated ones are.
    const bool together =
        rows && columns && !rotate && !row.rounding.stochastic && !column.rounding.stochastic;
    if (rows) describe(out, *rows, as_row);
    if (together) describe(out, *columns, as_column);
    if (rows) run(x, out, row);
    if (columns && !together) {
      Handle other(NVTE_NVFP4_1D_SCALING);
      describe(other, *columns, rotate ? as_row : as_column);
      run(rotate ? rotated_transposed(x, on) : x, other, column);
    }
    if (rows) swizzle(*rows, on);
    if (columns) swizzle(*columns, on);
  }
  if (rows) matrix.row = std::move(rows->copy);
  if (columns) matrix.column = std::move(columns->copy);
  matrix.column.rotated = rotate;
  return matrix;
}

}  // namespace octavo::engine::te

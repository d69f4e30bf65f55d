#include "engine/te/layout.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "fp8/formats.h"

namespace octavo::engine::te {
namespace {

using fp8::Direction;
using fp8::Granularity;

int64_t blocks(int64_t size, int64_t block) {
  return (size + block - 1) / block;
}
int64_t padded(int64_t size, int64_t multiple) {
  return blocks(size, multiple) * multiple;
}

NVTEDType scale_type_of(const Layout& layout) {
  return layout.scale_type == at::kByte ? kNVTEFloat8E8M0 : kNVTEFloat32;
}

void want_shape(const char* what, const at::Tensor& found, at::IntArrayRef wanted) {
  if (found.defined() && found.sizes() == wanted && found.is_contiguous()) return;
  fail(ExitCode::kEnvironment, "te", what, " of a quantized matrix: wanted the shape ",
       octavo::str(wanted), ", found ",
       found.defined() ? octavo::str(found.sizes()) : std::string("none"));
}

// The E8M0 scales [across, along] that lie swizzled in tiles of 128 x 4.
at::Tensor unswizzled(const at::Tensor& scales, int64_t across, int64_t along) {
  return scales.view({padded(across, 128) / 128, padded(along, 4) / 4, 32, 4, 4})
      .permute({0, 3, 2, 1, 4})
      .reshape({padded(across, 128), padded(along, 4)})
      .narrow(0, 0, across)
      .narrow(1, 0, along);
}

// Decode factors of the grid, from the library's order.
at::Tensor plain_scales(const at::Tensor& scales, Granularity granularity, Direction direction,
                        const fp8::Grid& grid) {
  const bool row = direction == Direction::kRow;
  switch (granularity) {
    case Granularity::kTensor:
      return scales.view({1, 1});
    case Granularity::kBlock128:
      // The blocks along the sum come first in both directions; beyond the matrix is padding.
      if (row) return scales.narrow(1, 0, grid.grid_rows).t();
      return scales.narrow(1, 0, grid.grid_columns);
    case Granularity::kSquare128:
      if (row) return scales.narrow(1, 0, grid.grid_columns);
      return scales.narrow(1, 0, grid.grid_rows).t();
    case Granularity::kBlock32:
      if (row) return aten::from_e8m0(unswizzled(scales, grid.grid_rows, grid.grid_columns));
      return aten::from_e8m0(unswizzled(scales, grid.grid_columns, grid.grid_rows).t());
    case Granularity::kVector:
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      break;
  }
  OCTAVO_ASSERT(false && "refused by layout_of");
  return {};
}

}  // namespace

Layout layout_of(const fp8::Side& side, Direction direction, int64_t rows, int64_t columns,
                 const DeviceFacts& facts) {
  const bool row = direction == Direction::kRow;
  const int64_t along = row ? columns : rows, across = row ? rows : columns;
  Layout layout;
  switch (side.granularity) {
    case Granularity::kTensor:
      layout.transposed = !row && !facts.any_layout;
      layout.scales = {1};
      break;
    case Granularity::kBlock128:
      layout.mode = NVTE_BLOCK_SCALING_1D;
      layout.transposed = !row;
      layout.scales = {blocks(along, 128), padded(across, 4)};
      break;
    case Granularity::kSquare128:
      layout.mode = NVTE_BLOCK_SCALING_2D;
      layout.transposed = !row;
      layout.scales = {blocks(across, 128), padded(blocks(along, 128), 4)};
      break;
    case Granularity::kBlock32:
      layout.mode = NVTE_MXFP8_1D_SCALING;
      layout.scale_type = at::kByte;
      if (row)
        layout.scales = {padded(rows, 128), padded(blocks(columns, 32), 4)};
      else
        layout.scales = {padded(blocks(rows, 32), 4), padded(columns, 128)};
      break;
    case Granularity::kVector:
    case Granularity::kBlock16:  // fp8::decide takes no GPU for it
    case Granularity::kSquare16:
      fail(ExitCode::kEnvironment, "te",
           "one scale per row: wanted a recipe that Transformer Engine has, found rowwise; take "
           "fp8_backend aten, or another recipe");
  }
  layout.codes = layout.transposed ? at::DimVector{columns, rows} : at::DimVector{rows, columns};
  return layout;
}

CopyParams params_of(const fp8::Side& side, Direction direction, const DeviceFacts& facts) {
  const bool as_row = direction == Direction::kRow ||
                      (side.granularity == Granularity::kTensor && facts.any_layout);
  if (as_row) return {kNVTERowwiseData, kNVTERowwiseScaleInv};
  return {kNVTEColumnwiseData, kNVTEColumnwiseScaleInv};
}

Fp8Copy allocate_copy(const Layout& layout, at::Device device) {
  const auto options = at::TensorOptions(device);
  return {.codes = at::empty(layout.codes, options.dtype(at::kByte)),
          .scales = at::empty(layout.scales, options.dtype(layout.scale_type)),
          .values = {}};
}

void describe_copy(Handle& handle, const Fp8Copy& copy, const fp8::Side& side, const Layout& layout,
                   const CopyParams& params) {
  want_shape("codes", copy.codes, layout.codes);
  want_shape("scales", copy.scales, layout.scales);
  handle.set(params.data, copy.codes, type_of(side.format));
  handle.set(params.scales, copy.scales, scale_type_of(layout));
}

aten::PlainFp8 plain_copy(const Fp8Matrix& matrix, Direction direction, const DeviceFacts& facts) {
  const fp8::Side& side = matrix.side(direction);
  const Fp8Copy& copy = matrix.copy(direction);
  const Layout layout = layout_of(side, direction, matrix.rows, matrix.columns, facts);
  want_shape("codes", copy.codes, layout.codes);
  want_shape("scales", copy.scales, layout.scales);
  return {.codes = layout.transposed ? copy.codes.t() : copy.codes,
          .decode = plain_scales(copy.scales, side.granularity, direction, matrix.grid(direction))};
}

}  // namespace octavo::engine::te

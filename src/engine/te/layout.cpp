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

void want_shape(const char* what, const at::Tensor& found, const std::vector<int64_t>& wanted) {
  if (found.defined() && found.sizes() == at::IntArrayRef(wanted) && found.is_contiguous()) return;
  fail(ExitCode::kEnvironment, "te", what, " of a quantized matrix: wanted the shape ",
       octavo::str(at::IntArrayRef(wanted)), ", found ",
       found.defined() ? octavo::str(found.sizes()) : std::string("none"));
}

// Where the scale (i, j) of a matrix of `j_count` columns, padded to 4, is after swizzling.
int64_t swizzled_index(int64_t i, int64_t j, int64_t j_count) {
  return ((i / 128) * (padded(j_count, 4) / 4) + j / 4) * 512 + (i % 32) * 16 + (i % 128) / 32 * 4 +
         j % 4;
}

// Row by row of the grid, from the library's order.
at::Tensor plain_scales(const at::Tensor& scales, Granularity granularity, Direction direction,
                        const fp8::Grid& grid) {
  const bool row = direction == Direction::kRow;
  switch (granularity) {
    case Granularity::kTensor:
      return scales.reshape({-1});
    case Granularity::kBlock128:
      // The blocks along the sum come first in both directions; beyond the matrix is padding.
      if (row) return scales.narrow(1, 0, grid.grid_rows).t().contiguous().reshape({-1});
      return scales.narrow(1, 0, grid.grid_columns).contiguous().reshape({-1});
    case Granularity::kSquare128:
      if (row) return scales.narrow(1, 0, grid.grid_columns).contiguous().reshape({-1});
      return scales.narrow(1, 0, grid.grid_rows).t().contiguous().reshape({-1});
    case Granularity::kBlock32: {
      at::Tensor plain = at::empty({grid.count()}, at::kByte);
      const auto* from = scales.const_data_ptr<uint8_t>();
      auto* to = plain.mutable_data_ptr<uint8_t>();
      for (int64_t r = 0; r < grid.grid_rows; ++r)
        for (int64_t c = 0; c < grid.grid_columns; ++c)
          *to++ = from[row ? swizzled_index(r, c, grid.grid_columns)
                           : swizzled_index(c, r, grid.grid_rows)];
      return plain;
    }
    case Granularity::kVector:
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
      fail(ExitCode::kEnvironment, "te",
           "one scale per row: wanted a recipe that Transformer Engine has, found rowwise; take "
           "fp8_backend aten, or another recipe");
  }
  layout.codes = layout.transposed ? std::vector{columns, rows} : std::vector{rows, columns};
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

Fp8Copy plain_copy(const Fp8Matrix& matrix, Direction direction, const DeviceFacts& facts) {
  const fp8::Side& side = matrix.side(direction);
  const Fp8Copy& copy = matrix.copy(direction);
  const Layout layout = layout_of(side, direction, matrix.rows, matrix.columns, facts);
  want_shape("codes", copy.codes, layout.codes);
  want_shape("scales", copy.scales, layout.scales);
  const at::Tensor codes = copy.codes.cpu();
  return {.codes = layout.transposed ? codes.t().contiguous() : codes,
          .scales =
              plain_scales(copy.scales.cpu(), side.granularity, direction, matrix.grid(direction)),
          .values = {}};
}

}  // namespace octavo::engine::te

#include "engine/te/layout.h"

#include <ATen/ATen.h>

#include <limits>

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

// Behind the block scales, which are a multiple of 512 bytes.
constexpr int64_t kAmaxBytes = 16;

NVTEDType scale_type_of(const Layout& layout) {
  return layout.scale_type == at::kByte ? kNVTEFloat8E8M0 : kNVTEFloat32;
}

void want_shape(const char* what, const at::Tensor& found, at::IntArrayRef wanted) {
  if (found.defined() && found.sizes() == wanted && found.is_contiguous()) return;
  fail(ExitCode::kEnvironment, "te", what, " of a quantized matrix: wanted the shape ",
       octavo::str(wanted), ", found ",
       found.defined() ? octavo::str(found.sizes()) : std::string("none"));
}

// The block scales [across, along] that lie swizzled in tiles of 128 x 4.
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
    case Granularity::kBlock16:  // plain_nvfp4() has them
    case Granularity::kSquare16:
      break;
  }
  OCTAVO_ASSERT(false && "refused by layout_of");
  return {};
}

// Nibbles [rows, columns / 2] as bytes of Format::kE2M1, whose sign is in the highest bit.
at::Tensor unpacked(const at::Tensor& codes) {
  const at::Tensor nibbles =
      at::stack({codes.bitwise_and(15), codes.bitwise_right_shift(4)}, -1).flatten(1);
  return nibbles.bitwise_and(7).bitwise_or_(nibbles.bitwise_and(8).bitwise_left_shift_(4));
}

// What is left of a value beside its code and its block's scale: 1 / S of fp8/nvfp4.h.
at::Tensor rest_of(const at::Tensor& amax) {
  const at::Tensor factor = at::div(at::scalar_tensor(448 * 6, at::kFloat), amax)
                                .clamp_max_(std::numeric_limits<float>::max());
  return factor.masked_fill(amax.eq(0).logical_or_(factor.eq(0)), 1).reciprocal_();
}

aten::PlainFp8 plain_nvfp4(const Fp8Copy& copy, const fp8::Side& side, Direction direction,
                           const Layout& layout) {
  const int64_t across = copy.codes.size(0), along = copy.codes.size(1) / 8;
  const Nvfp4Scales scales = nvfp4_scales(copy, layout);
  at::Tensor blocks = unswizzled(scales.blocks, across, along);
  // Each row has the scale of its square.
  if (side.granularity == Granularity::kSquare16) blocks = blocks.slice(0, 0, across, 16);
  at::Tensor decode = aten::values_of(blocks.contiguous(), fp8::Format::kE4M3, at::kFloat)
                          .mul_(rest_of(scales.amax));
  at::Tensor codes = unpacked(copy.codes);
  const bool row = direction == Direction::kRow;
  return {.codes = row ? codes : codes.t(), .decode = row ? decode : decode.t()};
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
    case Granularity::kBlock16:
    case Granularity::kSquare16:
      layout.mode = NVTE_NVFP4_1D_SCALING;
      layout.transposed = !row;
      layout.scale_type = at::kByte;
      layout.blocks = {padded(across, 128), padded(blocks(along, 16), 4)};
      layout.scales = {layout.blocks[0] * layout.blocks[1] + kAmaxBytes};
      layout.codes = {across, along / 2};
      return layout;
    case Granularity::kVector:
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
  if (layout.mode == NVTE_NVFP4_1D_SCALING) {
    const Nvfp4Scales scales = nvfp4_scales(copy, layout);
    describe_nvfp4(handle, {copy.codes, scales.blocks, scales.amax}, params);
    return;
  }
  handle.set(params.data, copy.codes, type_of(side.format));
  handle.set(params.scales, copy.scales, scale_type_of(layout));
}

Nvfp4Scales nvfp4_scales(const Fp8Copy& copy, const Layout& layout) {
  const int64_t bytes = c10::multiply_integers(layout.blocks);
  return {.blocks = copy.scales.narrow(0, 0, bytes).view(layout.blocks),
          .amax = copy.scales.narrow(0, bytes, kAmaxBytes).view(at::kFloat).narrow(0, 0, 1)};
}

// The library wants the shape of the elements, not of the bytes.
void describe_nvfp4(Handle& handle, const Nvfp4Copy& copy, const CopyParams& params) {
  handle.set(params.data, copy.codes.data_ptr(), kNVTEFloat4E2M1,
             {copy.codes.size(0), 2 * copy.codes.size(1)});
  handle.set(params.scales, copy.blocks, kNVTEFloat8E4M3);
  handle.set(params.data == kNVTERowwiseData ? kNVTEAmax : kNVTEColumnwiseAmax, copy.amax,
             kNVTEFloat32);
}

aten::PlainFp8 plain_copy(const Fp8Matrix& matrix, Direction direction, const DeviceFacts& facts) {
  const fp8::Side& side = matrix.side(direction);
  const Fp8Copy& copy = matrix.copy(direction);
  const Layout layout = layout_of(side, direction, matrix.rows, matrix.columns, facts);
  want_shape("codes", copy.codes, layout.codes);
  want_shape("scales", copy.scales, layout.scales);
  if (layout.mode == NVTE_NVFP4_1D_SCALING) return plain_nvfp4(copy, side, direction, layout);
  return {.codes = layout.transposed ? copy.codes.t() : copy.codes,
          .decode = plain_scales(copy.scales, side.granularity, direction, matrix.grid(direction))};
}

}  // namespace octavo::engine::te

#pragma once
// How the library wants the copies of a quantized matrix to lie in memory, for a matrix [M,K]:
//
//                 row copy                          column copy
//   per tensor    [M,K]; FP32 [1]                   transposed [K,M]; the same scale. On devices
//   that
//                                                   take any layout: the row copy itself
//   1 x 128       [M,K]; FP32 [K/128, M up to 4]    transposed [K,M]; FP32 [M/128, K up to 4]
//   128 x 128     [M,K]; FP32 [M/128, K/128 up to 4]  transposed [K,M]; FP32 [K/128, M/128 up to 4]
//   1 x 32        [M,K]; E8M0, swizzled             not transposed [M,K]; E8M0, swizzled
//   nvfp4         [M,K/2]; E4M3, swizzled           transposed [K,M/2]; E4M3, swizzled
//
// NVFP4 has two codes in a byte, the even element's in the low nibble, and a scale for 16 values of
// a row, of blocks of 16 x 16 too; behind the scales is the amax of the matrix, in FP32.
// Divisions round up. Swizzled scales are a matrix of 128 x 4 tiles, each of 512 bytes in the order
// that the matrix units read.

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include "engine/aten/fp8_quantize.h"
#include "engine/fp8_linear.h"
#include "engine/te/library.h"
#include "engine/te/tensor.h"

namespace octavo::engine::te {

struct Layout {
  NVTEScalingMode mode = NVTE_DELAYED_TENSOR_SCALING;
  bool transposed = false;
  at::DimVector codes, scales;  // shapes
  at::DimVector blocks;         // of nvfp4: that of the block scales alone
  at::ScalarType scale_type = at::kFloat;
};

// Fails for one scale per row: Transformer Engine has no such recipe.
Layout layout_of(const fp8::Side& side, fp8::Direction direction, int64_t rows, int64_t columns,
                 const DeviceFacts& facts);

// The parameters under which a copy is described. On devices that take any layout a column copy of
// one scale per tensor is a row copy.
struct CopyParams {
  NVTETensorParam data, scales;
};
CopyParams params_of(const fp8::Side& side, fp8::Direction direction, const DeviceFacts& facts);

Fp8Copy allocate_copy(const Layout& layout, at::Device device);

// Describes a copy that exists. Fails when its shapes are not what the layout says: the library
// looks at few of them.
void describe_copy(Handle& handle, const Fp8Copy& copy, const fp8::Side& side, const Layout& layout,
                   const CopyParams& params);

// The scales of a copy in NVFP4: views of what the copy has.
struct Nvfp4Scales {
  at::Tensor blocks;  // E4M3 bytes, as Layout::blocks
  at::Tensor amax;    // FP32 [1]
};
Nvfp4Scales nvfp4_scales(const Fp8Copy& copy, const Layout& layout);
struct Nvfp4Copy {
  at::Tensor codes, blocks, amax;
};
void describe_nvfp4(Handle& handle, const Nvfp4Copy& copy, const CopyParams& params);

// In the order of fp8/quantize.h, where it is: codes [M,K] and decode factors of the grid, mostly
// views.
aten::PlainFp8 plain_copy(const Fp8Matrix& matrix, fp8::Direction direction,
                          const DeviceFacts& facts);

}  // namespace octavo::engine::te

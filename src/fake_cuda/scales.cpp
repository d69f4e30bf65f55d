// How cuBLASLt reads scale factors from memory.
#include <cublasLt.h>

#include <cmath>
#include <limits>

#include "fake_cuda/gemm.h"

namespace octavo::fake_cuda {
namespace {

std::int64_t blocks_of(std::int64_t elements, std::int64_t block) {
  return (elements + block - 1) / block;
}

// A power of two, or NaN for 255.
float from_e8m0(std::uint8_t bits) {
  return bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
}

// Tiles of 128 rows by 4 blocks, 512 bytes each; inside a tile rows 0, 32, 64 and 96 stand next to
// each other.
std::int64_t tiled_index(std::int64_t outer, std::int64_t inner_block, std::int64_t inner_blocks) {
  const std::int64_t tiles = blocks_of(inner_blocks, 4);
  return (outer / 128 * tiles + inner_block / 4) * 512 + outer % 32 * 16 + outer % 128 / 32 * 4 +
         inner_block % 4;
}

}  // namespace

float ScaleView::whole(std::int64_t at) const {
  if (data == nullptr) return 1;
  const auto* const values = static_cast<const float*>(data);
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
      return values[0];
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return values[at];
    default:
      return 1;
  }
}

float ScaleView::block(std::int64_t at, std::int64_t inner_block) const {
  const auto* const values = static_cast<const float*>(data);
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return values[inner_block * outer + at];  // rows next to each other
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: {
      const std::int64_t stride =
          blocks_of(blocks_of(inner, kBlock), 4) * 4;  // padded to four blocks
      return values[at / kBlock * stride + inner_block];
    }
    default:
      return 1;
  }
}

float ScaleView::mx_block(std::int64_t at, std::int64_t inner_block) const {
  const auto* const bytes = static_cast<const std::uint8_t*>(data);
  return from_e8m0(bytes[tiled_index(at, inner_block, blocks_of(inner, kMxBlock))]);
}

bool ScaleView::padding_is_nan(std::int64_t at) const {
  const std::int64_t real = blocks_of(inner, kMxBlock);
  for (std::int64_t i = real; i < blocks_of(real, 4) * 4; ++i) {
    if (std::isnan(mx_block(at, i))) return true;
  }
  return false;
}

}  // namespace octavo::fake_cuda

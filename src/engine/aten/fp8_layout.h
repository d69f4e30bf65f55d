#pragma once
// How cuBLASLt wants quantized matrices to lie in memory, by compute capability. A step of its own,
// so that tests can do it on the CPU and hand the result to a device.
//
// A GEMM out[M,N] = a[M,K] b[K,N] reads operands whose scales follow K. A row copy has K along
// its columns, a column copy along its rows:
//                       codes                          scales
//   one scale           row: as stored                 FP32 [1]
//                       column: transposed where only rows of K are taken (TN), as stored where
//                               any layout is
//   one per row         row: as stored                 FP32 [R] / [C]
//                       column: transposed
//   1 x 128             row: as stored                 FP32 [K blocks, R / C]: each block's scales
//                       column: transposed             together; rows padded to a multiple of 4
//   128 x 128           row: as stored                 FP32 [other blocks, K blocks padded to a
//                       column: transposed             multiple of 4]
//   1 x 32              as stored in both              E8M0, swizzled in tiles of 128 x 4

#include <ATen/core/Tensor.h>

#include "engine/aten/fp8_quantize.h"

namespace octavo::engine::aten {

// What a GPU's cuBLASLt takes.
struct GemmRules {
  bool any_layout = false;         // one scale: operands of every layout (10.x)
  bool adds_by_row = false;        // one scale per row: can add to what is there (9.0)
  bool has_blocks_of_128 = false;  // 9.0
  bool has_blocks_of_32 = false;   // 10.x
};
constexpr GemmRules rules_of(int capability) {
  const bool hopper = capability == 90, blackwell = capability >= 100 && capability < 120;
  return {.any_layout = blackwell,
          .adds_by_row = hopper,
          .has_blocks_of_128 = hopper,
          .has_blocks_of_32 = blackwell};
}

// The copy's codes lie [columns, rows].
bool is_transposed(fp8::Granularity granularity, fp8::Direction direction, const GemmRules& rules);

Fp8Copy lay_out(const PlainFp8& made, fp8::Granularity granularity, fp8::Direction direction,
                const GemmRules& rules);

// E8M0 codes [rows, K blocks] as the matrix units read them: whole tiles of 128 x 4, padded with
// zeros.
at::Tensor swizzled(const at::Tensor& codes);

}  // namespace octavo::engine::aten

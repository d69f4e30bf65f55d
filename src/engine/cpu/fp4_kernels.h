#pragma once
// Quantizing BF16 matrices to NVFP4, by Highway. Same bits as fp8/nvfp4.cpp, whose codes are
// nibbles; here they are bytes of Format::kE2M1.

#include "engine/cpu/fp8_kernels.h"
#include "fp8/nvfp4.h"

namespace octavo::engine::cpu {

struct Fp4Request {
  fp8::Granularity granularity;  // kBlock16, kSquare16
  fp8::Direction direction;
  // Blocks of columns alone: of the Hadamard transform of every 16 values of a column. The rows are
  // a multiple of 16.
  bool rotate = false;
  // Elements are counted in the matrix whose rows are summed over: of a column copy the transposed.
  fp8::Nvfp4Rounding rounding{};
};

// Where results go; each may be null but `scales`. `codes` and `values` are [rows, columns]; values
// are codes times the scale of their block. `packed` is [rows / 2, columns]: two rows in one of
// bytes, the first in the low nibbles, for copies by columns of an even number of rows. `scales`
// and `scale_codes`, in E4M3, have one for each block of the grid.
struct Fp4Target {
  uint8_t* codes = nullptr;
  uint8_t* packed = nullptr;
  uint16_t* values = nullptr;
  float* scales = nullptr;
  uint8_t* scale_codes = nullptr;
};

struct Fp4Done {
  uint16_t largest;  // magnitude of what was quantized as bits; NaN is larger than infinity
  float amax;        // of the numbers
};
Fp4Done quantize_fp4(const Bf16Matrix& x, const Fp4Request& request, const Fp4Target& target);

// The Hadamard transform of every 16 values of a column; rows: a multiple of 16. The largest
// magnitude as above.
uint16_t rotate_columns(const Bf16Matrix& x, uint16_t* out);

// The values of packed codes with scales of columns (FP32): in rows, or in the order in which a
// GEMM reads them.
struct Fp4Packed {
  const uint8_t* data;
  int64_t rows, columns;  // of the matrix
  const float* scales;
};
void decode_packed(const Fp4Packed& codes, uint16_t* values);
void decode_packed_pairs(const Fp4Packed& codes, const PairedLayout& layout, uint16_t* values);

// What a value is worth beside its code and its block's scale: 1 / S of nvfp4.h.
float fp4_rest(float amax);

}  // namespace octavo::engine::cpu

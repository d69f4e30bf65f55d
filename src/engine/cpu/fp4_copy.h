#pragma once
// Copies of matrices in NVFP4 for the rehearsal: BF16 values for a GEMM that comes now. What is
// kept for the weight gradient is two codes in a byte and scales in E4M3: 9/16 of a byte for each
// value.

#include "engine/cpu/fp4_kernels.h"
#include "engine/fp8_linear.h"

namespace octavo::engine::cpu {

inline bool is_fp4(const fp8::Side& side) {
  return side.format == fp8::Format::kE2M1;
}

struct Fp4Copy {
  Fp8Copy copy;
  bool has_other_than_numbers;  // an infinity or a NaN
};
// `codes`, `values`: what to make.
Fp4Copy make_fp4_copy(const at::Tensor& x, fp8::Direction direction, const QuantizeSpec& order,
                      bool codes, bool values);

// Of the matrix that was quantized.
float fp4_amax(const Fp8Copy& copy);
// FP32, one for each block.
at::Tensor fp4_block_scales(const Fp8Copy& copy);
// BF16, of a copy that has codes alone.
at::Tensor fp4_values(const Fp8Matrix& m, fp8::Direction direction);
bool is_packed(const Fp8Copy& copy);
void write_fp4_pairs(const Fp8Matrix& m, const PairedLayout& layout, uint16_t* to);  // its columns
at::Tensor fp4_rotated(const at::Tensor& x);

}  // namespace octavo::engine::cpu

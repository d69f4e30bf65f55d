#pragma once
// Weights that are not trained in eight bits, as frozen parameters and exported files keep them:
// E4M3 codes, and scales beside them. A weight is worth its code times its scale.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace octavo::nn {

// What shares a scale: `rows` x `columns` elements; at the edges of a matrix fewer.
struct Fp8Block {
  int64_t rows = 1, columns = 1;
};

struct Fp8Weight {
  at::Tensor codes;   // float8_e4m3fn, [out, in]
  at::Tensor scales;  // [ceil(out / rows), ceil(in / columns)]
};

// A matrix of finite numbers; others are refused, and `name` is in the message. The scale of a
// block is its largest magnitude / 448, rounded to scale_type (FP32 or BF16) before the codes are
// made; 1 for a block of zeros. Codes are rounded to nearest even and saturate. In the CPU's
// memory.
Fp8Weight quantize_weight(const at::Tensor& weight, const Fp8Block& block,
                          at::ScalarType scale_type, const std::string& name);

// On the codes' device; scales of any floating type and of quantize_weight's shape. FP32, or
// multiplied in FP32 and rounded once to another type.
at::Tensor dequantize_weight(const at::Tensor& codes, const at::Tensor& scales,
                             const Fp8Block& block, at::ScalarType type = at::kFloat);

}  // namespace octavo::nn

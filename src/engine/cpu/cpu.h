#pragma once
// Fused kernels for CPUs, compiled for several instruction sets by Highway and chosen at run time.

#include <memory>

#include "engine/cpu/gemm.h"
#include "engine/fp8_linear.h"
#include "engine/ops.h"

namespace octavo::engine::cpu {

std::unique_ptr<Matmul> make_matmul(GemmOperands operands);
std::unique_ptr<Fp8Linear> make_rehearsal(GemmOperands operands);
std::unique_ptr<Fp8Linear> make_hopper_rehearsal();
std::unique_ptr<LayerNorm> make_layer_norm();
std::unique_ptr<RmsNorm> make_rms_norm();
std::unique_ptr<Gelu> make_gelu();
std::unique_ptr<SwiGlu> make_swiglu();
std::unique_ptr<GeGlu> make_geglu();
std::unique_ptr<Rope> make_rope();
std::unique_ptr<ColumnSum> make_column_sum();
std::unique_ptr<CrossEntropy> make_cross_entropy();
std::unique_ptr<Attention> make_attention(GemmOperands operands);
std::unique_ptr<Embedding> make_embedding();
std::unique_ptr<AdamW> make_adamw();

}  // namespace octavo::engine::cpu

#pragma once
// Operations by libtorch's own kernels. Only calls that run on any device: what is tested on CPU
// tensors is what a GPU runs, but for the kernels that libtorch has for GPUs alone (flash
// attention, fused RMS norm, GEMMs with an FP32 result), whose calls are checked on the fake
// device. Nothing waits for the device. Between two kernels BF16 results are rounded, as in
// PyTorch.

#include <memory>

#include "engine/fp8_linear.h"
#include "engine/ops.h"

namespace octavo::engine::aten {

std::unique_ptr<Matmul> make_matmul();
std::unique_ptr<Fp8Linear> make_rehearsal();
// For a GPU of this compute capability (10 * major + minor).
std::unique_ptr<Fp8Linear> make_scaled_mm(int capability);
std::unique_ptr<LayerNorm> make_layer_norm();
std::unique_ptr<RmsNorm> make_rms_norm();
std::unique_ptr<Gelu> make_gelu();
std::unique_ptr<SwiGlu> make_swiglu();
std::unique_ptr<GeGlu> make_geglu();
std::unique_ptr<Rope> make_rope();
std::unique_ptr<ColumnSum> make_column_sum();
std::unique_ptr<CrossEntropy> make_cross_entropy();
std::unique_ptr<Attention> make_attention();
// cuDNN's, for GPUs, where all sequences have one length, a multiple of 64, heads are of at most
// 128 and there is no window; flash attention otherwise. attention_cudnn.h has what it calls.
std::unique_ptr<Attention> make_cudnn_attention();
std::unique_ptr<Embedding> make_embedding();
std::unique_ptr<AdamW> make_adamw();

}  // namespace octavo::engine::aten

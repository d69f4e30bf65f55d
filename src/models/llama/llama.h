#pragma once
// Llama and what was made like it (SmolLM2, Qwen2, Mistral): RMS norm before each branch, rotary
// positions, heads that share keys, SwiGLU. Projections that read the same input are one matrix
// here (qkv_proj, gate_up_proj): one GEMM, and in FP8 one quantization of the input; files keep
// them apart.

#include "models/model.h"

namespace octavo::models::llama {

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage);

}  // namespace octavo::models::llama

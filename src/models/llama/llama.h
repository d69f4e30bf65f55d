#pragma once
// Llama and what was made like it: RMS norms, rotary positions, heads that share keys, a gated MLP.
// What differs between families (model_config/families) is data: where norms are, norms of queries
// and keys, windows and rotary positions of each layer, the activation. Projections that read the
// same input are one matrix here (qkv_proj, gate_up_proj): one GEMM, and in FP8 one quantization of
// the input; files keep them apart.

#include "models/model.h"

namespace octavo::models::llama {

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage);

}  // namespace octavo::models::llama

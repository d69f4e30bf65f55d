#pragma once
// Llama and what was made like it (SmolLM2, Qwen2): RMS norm before each branch, rotary positions,
// heads that share keys, SwiGLU. Projections that read the same input are one matrix here
// (qkv_proj, gate_up_proj): one product, and in FP8 one quantization of the input; files keep them
// apart.

#include <optional>

#include "models/model.h"
#include "nn/rope.h"

namespace octavo::models::llama {

struct Config {
  std::string type = "llama";  // or "qwen2"
  int64_t layers = 16, heads = 32, kv_heads = 8, head_dim = 64, width = 2048, mlp = 8192;
  int64_t vocab = 128256, context = 131072;
  double eps = 1e-5, rope_theta = 500000;
  std::optional<nn::RopeScaling> rope_scaling;
  bool tied = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
};

// From a Hugging Face config.json of model_type llama or qwen2; a field that changes the
// mathematics and is not implemented is refused.
Config from_hugging_face(const Json& config, const std::string& source);
Json to_json(const Config& config);

std::unique_ptr<Model> make(const Config& config, const engine::Engine& engine,
                            const nn::Storage& storage = {});

}  // namespace octavo::models::llama

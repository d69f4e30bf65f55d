// Qwen3: Llama with norms of each query's and key's head before they are rotated.

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

ModelConfig read_qwen3(const ConfigSource& file) {
  LlamaReader reader(kQwen3Family, file, {.kv_heads = 32, .head_dim = 128});
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  const int64_t first = reader.first_window_layer();
  reader.read_optional_windows([&](int64_t layer) { return layer >= first; });
  return reader.done();
}

Json write_qwen3(const ModelConfig& config) {
  Json json = llama_json(config);
  json["attention_bias"] = config.out_bias;
  write_windows(config, json);
  json["use_sliding_window"] = config.window > 0;
  return json;
}

}  // namespace

const Family kQwen3Family = {.model_type = "qwen3",
                             .architecture = "Qwen3ForCausalLM",
                             .title = "Qwen3",
                             .qk_norm = QkNorm::kHead,
                             .read = read_qwen3,
                             .write = write_qwen3};

}  // namespace octavo::model_config

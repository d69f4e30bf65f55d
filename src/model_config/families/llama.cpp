// Llama, also SmolLM2: RMS norms before attention and MLP, rotary positions, SwiGLU.

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

ModelConfig read_llama(const ConfigSource& file) {
  LlamaReader reader(kLlamaFamily, file);
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  config.mlp_bias = reader.fields.flag_or("mlp_bias", false);
  return reader.done();
}

Json write_llama(const ModelConfig& config) {
  Json json = llama_json(config);
  json["attention_bias"] = config.out_bias;
  json["mlp_bias"] = config.mlp_bias;
  return json;
}

}  // namespace

const Family kLlamaFamily = {.model_type = "llama",
                             .architecture = "LlamaForCausalLM",
                             .title = "Llama",
                             .read = read_llama,
                             .write = write_llama};

}  // namespace octavo::model_config

// OLMo 2: norms after attention and MLP, none before, and norms of all queries and of all keys of a
// token. OLMo 3: the same with a window in three layers of four, and rotary positions that are
// stretched in the others alone.

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

constexpr double kOlmoNormEps = 1e-5, kOlmo3Theta = 5e5;

ModelConfig read_olmo2(const ConfigSource& file) {
  LlamaReader reader(kOlmo2Family, file, {.norm_eps = kOlmoNormEps});
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  return reader.done();
}

ModelConfig read_olmo3(const ConfigSource& file) {
  LlamaReader reader(kOlmo3Family, file, {.norm_eps = kOlmoNormEps, .ropes_by_layer = true});
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  reader.read_ropes_by_layer(kOlmo3Theta, kOlmo3Theta, nullptr);
  reader.read_windows(4096, [](int64_t layer) { return (layer + 1) % 4 != 0; });
  return reader.done();
}

Json write_olmo2(const ModelConfig& config) {
  Json json = llama_json(config);
  json["pad_token_id"] = nullptr;  // or transformers would pad with a token of its own
  json["attention_bias"] = config.out_bias;
  return json;
}

Json write_olmo3(const ModelConfig& config) {
  Json json = write_olmo2(config);
  write_windows(config, json);
  write_ropes_by_layer(config, json);
  return json;
}

}  // namespace

const Family kOlmo2Family = {.model_type = "olmo2",
                             .architecture = "Olmo2ForCausalLM",
                             .title = "OLMo 2",
                             .norms = NormPlace::kAfter,
                             .qk_norm = QkNorm::kWidth,
                             .read = read_olmo2,
                             .write = write_olmo2};

const Family kOlmo3Family = {.model_type = "olmo3",
                             .architecture = "Olmo3ForCausalLM",
                             .title = "OLMo 3",
                             .norms = NormPlace::kAfter,
                             .qk_norm = QkNorm::kWidth,
                             .read = read_olmo3,
                             .write = write_olmo3};

}  // namespace octavo::model_config

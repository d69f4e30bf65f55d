// Mistral: Llama whose layers see back as far as a window, when there is one.

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

ModelConfig read_mistral(const ConfigSource& file) {
  constexpr int64_t kWindowOfTheClass = 4096;  // of a file without the field; null is none
  LlamaReader reader(kMistralFamily, file, {.kv_heads = 8});
  reader.config.window = reader.fields.count_or(
      "sliding_window", kMaxTokens, reader.is_missing("sliding_window") ? kWindowOfTheClass : 0);
  reader.fields.must_be("attention_bias", {false});
  reader.fields.must_be("mlp_bias", {false});
  return reader.done();
}

Json write_mistral(const ModelConfig& config) {
  Json json = llama_json(config);
  json["sliding_window"] = config.window > 0 ? Json(config.window) : Json();
  return json;
}

}  // namespace

const Family kMistralFamily = {.model_type = "mistral",
                               .architecture = "MistralForCausalLM",
                               .title = "Mistral",
                               .read = read_mistral,
                               .write = write_mistral};

}  // namespace octavo::model_config

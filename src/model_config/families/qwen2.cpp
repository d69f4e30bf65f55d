// Qwen2, also Qwen2.5: Llama with biases on queries, keys and values.

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

ModelConfig read_qwen2(const ConfigSource& file) {
  LlamaReader reader(kQwen2Family, file);
  reader.config.qkv_bias = true;
  reader.fields.must_be("use_sliding_window", {false});
  reader.fields.must_be("use_mrope", {false});
  const int64_t first = reader.first_window_layer();
  reader.read_optional_windows([&](int64_t layer) { return layer >= first; });
  return reader.done();
}

}  // namespace

const Family kQwen2Family = {.model_type = "qwen2",
                             .architecture = "Qwen2ForCausalLM",
                             .title = "Qwen2",
                             .read = read_qwen2,
                             .write = llama_json};

}  // namespace octavo::model_config

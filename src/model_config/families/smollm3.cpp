// SmolLM3: Llama with layers, usually every fourth, that have no positions at all.

#include <algorithm>

#include "model_config/llama_fields.h"

namespace octavo::model_config {
namespace {

// no_rope_layers has a 1 for each layer with rotary positions; without it no_rope_layer_interval
// says which have none.
void read_rotated(LlamaReader& reader) {
  ModelConfig& config = reader.config;
  const int64_t interval = reader.fields.count_or("no_rope_layer_interval", kMaxLayers, 4);
  for (int64_t i = 0; i < config.layers; ++i) config.rotated.push_back((i + 1) % interval != 0);
  if (!reader.fields.has("no_rope_layers")) return reader.fields.harmless({"no_rope_layers"});
  const Json& list = reader.fields.object_or_empty("no_rope_layers");
  const auto is_flag = [](const Json& one) {
    return one.is_number_integer() && (one.get<int64_t>() | 1) == 1;  // 0 or 1
  };
  const bool whole = list.is_array() && list.size() >= static_cast<size_t>(config.layers) &&
                     std::all_of(list.begin(), list.end(), is_flag);
  if (!whole) return reader.fields.refuse("no_rope_layers");
  for (size_t i = 0; i < config.rotated.size(); ++i) config.rotated[i] = list[i] == 1;
}

ModelConfig read_smollm3(const ConfigSource& file) {
  LlamaReader reader(kSmolLm3Family, file, {.kv_heads = 4, .tied = true, .theta = 2e6});
  ModelConfig& config = reader.config;
  config.qkv_bias = config.out_bias = reader.fields.flag_or("attention_bias", false);
  config.mlp_bias = reader.fields.flag_or("mlp_bias", false);
  read_rotated(reader);
  // Windows, when they are in use, are those of the layers without positions.
  reader.fields.harmless({"max_window_layers"});
  reader.read_optional_windows([&](int64_t layer) { return !config.is_rotated(layer); });
  return reader.done();
}

Json write_smollm3(const ModelConfig& config) {
  Json json = llama_json(config);
  json["pad_token_id"] = nullptr;  // or transformers would pad with a token of its own
  json["attention_bias"] = config.out_bias;
  json["mlp_bias"] = config.mlp_bias;
  write_windows(config, json);
  json["use_sliding_window"] = config.window > 0;
  json["no_rope_layers"] = Json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    json["no_rope_layers"].push_back(config.is_rotated(i) ? 1 : 0);
  return json;
}

}  // namespace

const Family kSmolLm3Family = {.model_type = "smollm3",
                               .architecture = "SmolLM3ForCausalLM",
                               .title = "SmolLM3",
                               .read = read_smollm3,
                               .write = write_smollm3};

}  // namespace octavo::model_config

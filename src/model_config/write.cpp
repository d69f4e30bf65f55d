#include "model_config/config_file.h"

namespace octavo::model_config {
namespace {

Json gpt2_json(const ModelConfig& c) {
  return {{"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_embd", c.width},
          {"n_positions", c.context},
          {"n_ctx", c.context},
          {"vocab_size", c.vocab},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", "gelu_new"}};
}

Json llama_json(const ModelConfig& c) {
  Json rope = {{"rope_theta", c.rope.theta}, {"rope_type", "default"}};
  if (c.rope.scaling) {
    const RopeScaling& s = *c.rope.scaling;
    rope = {{"rope_theta", c.rope.theta},
            {"rope_type", "llama3"},
            {"factor", s.factor},
            {"low_freq_factor", s.low_freq_factor},
            {"high_freq_factor", s.high_freq_factor},
            {"original_max_position_embeddings", s.original_context}};
  }
  Json config = {{"num_hidden_layers", c.layers},
                 {"hidden_size", c.width},
                 {"intermediate_size", c.mlp},
                 {"num_attention_heads", c.heads},
                 {"num_key_value_heads", c.kv_heads},
                 {"head_dim", c.head_dim},
                 {"vocab_size", c.vocab},
                 {"max_position_embeddings", c.context},
                 {"rms_norm_eps", c.norm_eps},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", c.tied},
                 {"rope_theta", c.rope.theta}};
  // Both spellings: readers before transformers 5 know the old one only.
  if (c.rope.scaling) {
    config["rope_scaling"] = rope;
    config["rope_scaling"].erase("rope_theta");
  }
  config["rope_parameters"] = rope;
  if (c.family == Family::kLlama) {
    config["attention_bias"] = c.out_bias;
    config["mlp_bias"] = c.mlp_bias;
  }
  // A file without it has a window of 4096.
  if (c.family == Family::kMistral)
    config["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  return config;
}

}  // namespace

Json to_json(const ModelConfig& config) {
  Json json = config.is_gpt2() ? gpt2_json(config) : llama_json(config);
  json["model_type"] = names_of(config.family).model_type;
  json["architectures"] = {names_of(config.family).architecture};
  return json;
}

}  // namespace octavo::model_config

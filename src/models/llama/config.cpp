#include "base/error.h"
#include "models/config_fields.h"
#include "models/llama/llama.h"

namespace octavo::models::llama {
namespace {

struct Rope {
  double theta = 10000;
  std::optional<nn::RopeScaling> scaling;
  bool operator==(const Rope&) const = default;
};

// One of the two objects; `theta` is what holds when it does not say it.
Rope read_rope_object(ConfigFields& fields, const char* name, const std::string& source,
                      double theta) {
  const Json& object = fields.object_or_empty(name);
  ConfigFields rope(object, source + ": " + name, "RoPE of Llama and Qwen2");
  Rope found{.theta = rope.real_or("rope_theta", theta), .scaling = {}};
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  if (type == "llama3") {
    nn::RopeScaling scaling;
    scaling.factor = rope.real_or("factor", scaling.factor);
    scaling.low_freq_factor = rope.real_or("low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = rope.real_or("high_freq_factor", scaling.high_freq_factor);
    scaling.original_context =
        rope.count_or("original_max_position_embeddings", 1 << 24, scaling.original_context);
    if (!(scaling.factor > 0) || !(scaling.high_freq_factor > scaling.low_freq_factor))
      fail(ExitCode::kDamaged, "models", source,
           ": RoPE wanted with factor > 0 and high_freq_factor > low_freq_factor, found ",
           object.dump());
    found.scaling = scaling;
  } else if (type != "default") {
    fields.refuse(name);
  }
  rope.must_be("partial_rotary_factor", {1});
  rope.refuse_rest();
  if (!(found.theta > 1))
    fail(ExitCode::kDamaged, "models", source, ": rope_theta wanted above 1, found ", found.theta);
  return found;
}

// transformers 5 writes rope_parameters; files of before have rope_theta and rope_scaling. Some
// have both, and readers differ in which of them they believe.
void read_rope(ConfigFields& fields, const std::string& source, Config& config) {
  const double theta = fields.real_or("rope_theta", 10000);
  const Rope old = read_rope_object(fields, "rope_scaling", source, theta);
  const bool is_new = fields.has("rope_parameters");
  const Rope rope = is_new ? read_rope_object(fields, "rope_parameters", source, theta) : old;
  if (is_new && fields.has("rope_scaling") && old != rope)
    fail(ExitCode::kUsage, "models", source,
         ": wanted rope_scaling and rope_parameters to say the same, found two kinds of RoPE; "
         "remove the one that the model was not trained with");
  config.rope_theta = rope.theta;
  config.rope_scaling = rope.scaling;
}

void read_qwen2(ConfigFields& fields, const Config& config) {
  fields.must_be("use_sliding_window", {false});
  fields.must_be("use_mrope", {false});
  fields.harmless({"sliding_window", "max_window_layers"});
  Json full = Json::array();
  for (int64_t i = 0; i < config.layers; ++i) full.push_back("full_attention");
  fields.must_be("layer_types", {full});
}

}  // namespace

Config from_hugging_face(const Json& object, const std::string& source) {
  Config config;
  config.type = json_string(object, "model_type", source);
  ConfigFields fields(object, source, config.type == "qwen2" ? "Qwen2" : "Llama");
  if (config.type != "llama" && config.type != "qwen2") fields.refuse("model_type");
  const bool is_qwen2 = config.type == "qwen2";
  fields.pass_general();
  fields.harmless({"is_llama_config", "quantization_config", "attention_dropout"});
  config.layers = fields.count("num_hidden_layers", 1000);
  config.width = fields.count("hidden_size", 1 << 20);
  config.mlp = fields.count("intermediate_size", 1 << 22);
  config.heads = fields.count("num_attention_heads", 4096);
  config.kv_heads = fields.count_or("num_key_value_heads", 4096, config.heads);
  config.vocab = fields.count("vocab_size", 1 << 24);
  config.context = fields.count("max_position_embeddings", 1 << 24);
  config.eps = fields.real_or("rms_norm_eps", 1e-6);
  config.tied = fields.flag_or("tie_word_embeddings", false);
  const bool attention_bias = !is_qwen2 && fields.flag_or("attention_bias", false);
  config.qkv_bias = is_qwen2 || attention_bias;
  config.out_bias = attention_bias;
  config.mlp_bias = !is_qwen2 && fields.flag_or("mlp_bias", false);
  config.head_dim = fields.count_or("head_dim", 1 << 14, config.width / config.heads);
  if (config.heads % config.kv_heads != 0 || config.head_dim < 2 || config.head_dim % 2 != 0)
    fail(ExitCode::kDamaged, "models", source,
         ": wanted num_attention_heads to be a multiple of num_key_value_heads and an even "
         "head_dim, found ",
         config.heads, ", ", config.kv_heads, " and ", config.head_dim);
  read_rope(fields, source, config);
  fields.must_be("hidden_act", {"silu", "swish"});
  fields.must_be("pretraining_tp", {1});
  fields.must_be("rope_interleaved", {false});
  fields.must_be("partial_rotary_factor", {1});
  if (is_qwen2) read_qwen2(fields, config);
  fields.refuse_rest();
  return config;
}

Json to_json(const Config& c) {
  Json rope = {{"rope_theta", c.rope_theta}, {"rope_type", "default"}};
  if (c.rope_scaling) {
    const nn::RopeScaling& s = *c.rope_scaling;
    rope = {{"rope_theta", c.rope_theta},
            {"rope_type", "llama3"},
            {"factor", s.factor},
            {"low_freq_factor", s.low_freq_factor},
            {"high_freq_factor", s.high_freq_factor},
            {"original_max_position_embeddings", s.original_context}};
  }
  const bool is_qwen2 = c.type == "qwen2";
  Json config = {{"model_type", c.type},
                 {"architectures", {is_qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                 {"num_hidden_layers", c.layers},
                 {"hidden_size", c.width},
                 {"intermediate_size", c.mlp},
                 {"num_attention_heads", c.heads},
                 {"num_key_value_heads", c.kv_heads},
                 {"head_dim", c.head_dim},
                 {"vocab_size", c.vocab},
                 {"max_position_embeddings", c.context},
                 {"rms_norm_eps", c.eps},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", c.tied},
                 {"rope_theta", c.rope_theta}};
  // Both spellings: readers before transformers 5 know the old one only.
  if (c.rope_scaling) {
    config["rope_scaling"] = rope;
    config["rope_scaling"].erase("rope_theta");
  }
  config["rope_parameters"] = rope;
  if (!is_qwen2) {
    config["attention_bias"] = c.out_bias;
    config["mlp_bias"] = c.mlp_bias;
  }
  return config;
}

}  // namespace octavo::models::llama

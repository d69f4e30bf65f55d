#include "base/error.h"
#include "model_config/config_fields.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"

namespace octavo::model_config {
namespace {

using Refusal = std::optional<Error>*;
constexpr int64_t kMaxLayers = 1000, kMaxWidth = 1 << 20, kMaxTokens = 1 << 24;

// One of the two objects; `theta` is what holds when it does not say it.
Rope read_rope_object(ConfigFields& fields, const char* name, const std::string& source,
                      double theta, Refusal refusal) {
  const Json& object = fields.object_or_empty(name);
  ConfigFields rope(object, source + ": " + name, "RoPE of Llama, Mistral and Qwen2", refusal);
  Rope found{.theta = rope.real_or("rope_theta", theta), .scaling = {}};
  const std::string type = rope.text_or("rope_type", rope.text_or("type", "default"));
  if (type == "llama3") {
    RopeScaling scaling;
    scaling.factor = rope.real_or("factor", scaling.factor);
    scaling.low_freq_factor = rope.real_or("low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = rope.real_or("high_freq_factor", scaling.high_freq_factor);
    scaling.original_context =
        rope.count_or("original_max_position_embeddings", kMaxTokens, scaling.original_context);
    if (!(scaling.factor > 0) || !(scaling.high_freq_factor > scaling.low_freq_factor))
      fail(ExitCode::kDamaged, "model_config", source,
           ": RoPE wanted with factor > 0 and high_freq_factor > low_freq_factor, found ",
           object.dump());
    found.scaling = scaling;
  } else if (type != "default") {
    fields.refuse(name);
  }
  rope.must_be("partial_rotary_factor", {1});
  rope.refuse_rest();
  if (!(found.theta > 1))
    fail(ExitCode::kDamaged, "model_config", source, ": rope_theta wanted above 1, found ",
         found.theta);
  return found;
}

// transformers 5 writes rope_parameters; files of before have rope_theta and rope_scaling. Some
// have both, and readers differ in which of them they believe.
Rope read_rope(ConfigFields& fields, const std::string& source, Refusal refusal) {
  const double theta = fields.real_or("rope_theta", 10000);
  const Rope old = read_rope_object(fields, "rope_scaling", source, theta, refusal);
  if (!fields.has("rope_parameters")) return old;
  const Rope rope = read_rope_object(fields, "rope_parameters", source, theta, refusal);
  if (fields.has("rope_scaling") && old != rope)
    fields.refuse_with(Error(
        ExitCode::kUsage, "model_config",
        source + ": wanted rope_scaling and rope_parameters to say the same, found two kinds of "
                 "RoPE; remove the one that the model was not trained with"));
  return rope;
}

void read_llama(ConfigFields& fields, ModelConfig& config) {
  config.qkv_bias = config.out_bias = fields.flag_or("attention_bias", false);
  config.mlp_bias = fields.flag_or("mlp_bias", false);
}

void read_qwen2(ConfigFields& fields, ModelConfig& config) {
  config.qkv_bias = true;
  fields.must_be("use_sliding_window", {false});
  fields.must_be("use_mrope", {false});
  fields.harmless({"sliding_window", "max_window_layers"});
  fields.must_be("layer_types", {Json(static_cast<size_t>(config.layers), "full_attention")});
}

void read_mistral(const Json& object, ConfigFields& fields, ModelConfig& config) {
  constexpr int64_t kWindowOfTheClass = 4096;  // of a file without the field; null is none
  const bool missing = !object.contains("sliding_window");
  config.window = fields.count_or("sliding_window", kMaxTokens, missing ? kWindowOfTheClass : 0);
  fields.must_be("attention_bias", {false});
  fields.must_be("mlp_bias", {false});
}

ModelConfig read_llama_family(Family family, const Json& object, const std::string& source,
                              Refusal refusal) {
  ConfigFields fields(object, source, names_of(family).title, refusal);
  ModelConfig config{.family = family};
  fields.pass_general();
  fields.harmless({"is_llama_config", "quantization_config", "attention_dropout"});
  config.layers = fields.count("num_hidden_layers", kMaxLayers);
  config.width = fields.count("hidden_size", kMaxWidth);
  config.mlp = fields.count("intermediate_size", 4 * kMaxWidth);
  config.heads = fields.count("num_attention_heads", 4096);
  config.kv_heads = fields.count_or("num_key_value_heads", 4096, config.heads);
  config.vocab = fields.count("vocab_size", kMaxTokens);
  config.context = fields.count_to_run("max_position_embeddings", kMaxTokens);
  config.norm_eps = fields.real_or("rms_norm_eps", 1e-6);
  config.tied = fields.flag_or("tie_word_embeddings", false);
  config.head_dim = fields.count_or("head_dim", 1 << 14, config.width / config.heads);
  if (config.heads % config.kv_heads != 0 || config.head_dim < 2 || config.head_dim % 2 != 0)
    fail(ExitCode::kDamaged, "model_config", source,
         ": wanted num_attention_heads to be a multiple of num_key_value_heads and an even "
         "head_dim, found ",
         config.heads, ", ", config.kv_heads, " and ", config.head_dim);
  config.rope = read_rope(fields, source, refusal);
  fields.must_be("hidden_act", {"silu", "swish"});
  fields.must_be("pretraining_tp", {1});
  fields.must_be("rope_interleaved", {false});
  fields.must_be("partial_rotary_factor", {1});
  if (family == Family::kLlama) read_llama(fields, config);
  if (family == Family::kQwen2) read_qwen2(fields, config);
  if (family == Family::kMistral) read_mistral(object, fields, config);
  fields.refuse_rest();
  return config;
}

ModelConfig read_gpt2(const Json& object, const std::string& source, Refusal refusal) {
  ConfigFields fields(object, source, names_of(Family::kGpt2).title, refusal);
  ModelConfig config = gpt2({.layers = fields.count("n_layer", kMaxLayers),
                             .heads = fields.count("n_head", 1000),
                             .width = fields.count("n_embd", kMaxWidth),
                             .vocab = fields.count("vocab_size", kMaxTokens),
                             .context = fields.count("n_positions", kMaxTokens)});
  config.norm_eps = fields.real_or("layer_norm_epsilon", config.norm_eps);
  if (config.width % config.heads != 0)
    fail(ExitCode::kDamaged, "model_config", source, ": n_embd ", config.width,
         " is not a multiple of n_head ", config.heads);
  fields.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  fields.must_be("scale_attn_weights", {true});
  fields.must_be("scale_attn_by_inverse_layer_idx", {false});
  fields.must_be("reorder_and_upcast_attn", {false});
  fields.must_be("tie_word_embeddings", {true});
  fields.must_be("n_inner", {config.mlp});
  config.mlp = fields.count_or("n_inner", 4 * kMaxWidth, config.mlp);
  // Rows for tokens of its own, which the first GPT-2 of pytorch-pretrained-bert added; without
  // such rows it does not matter whether they are predicted.
  fields.must_be("n_special", {0});
  fields.pass_general();
  fields.harmless({"predict_special_tokens", "n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop",
                   "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                   "summary_type", "summary_use_proj"});
  fields.refuse_rest();
  return config;
}

}  // namespace

ModelConfig read(const Json& object, const std::string& source, std::optional<Error>* refusal) {
  const std::string type = json_string(object, "model_type", source);
  if (type == names_of(Family::kGpt2).model_type) return read_gpt2(object, source, refusal);
  for (const Family family : {Family::kLlama, Family::kQwen2, Family::kMistral})
    if (type == names_of(family).model_type)
      return read_llama_family(family, object, source, refusal);
  fail(ExitCode::kUsage, "model_config", source, ": model_type '", type,
       "' is not implemented; there are gpt2, llama (also SmolLM2), mistral and qwen2");
}

}  // namespace octavo::model_config

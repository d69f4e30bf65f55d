// GPT-2: learned positions, LayerNorm, GELU, biases, a tied head.

#include "model_config/config_fields.h"
#include "model_config/llama_fields.h"
#include "model_config/presets.h"

namespace octavo::model_config {
namespace {

ModelConfig read_gpt2(const ConfigSource& file) {
  ConfigFields fields(file.object, file.name, kGpt2Family.title, file.refusal);
  ModelConfig config = gpt2({.layers = fields.count("n_layer", kMaxLayers),
                             .heads = fields.count("n_head", 1000),
                             .width = fields.count("n_embd", kMaxWidth),
                             .vocab = fields.count("vocab_size", kMaxTokens),
                             .context = fields.count("n_positions", kMaxTokens)});
  config.norm_eps = fields.real_or("layer_norm_epsilon", config.norm_eps);
  if (config.width % config.heads != 0)
    fail(ExitCode::kDamaged, "model_config", file.name, ": n_embd ", config.width,
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

Json write_gpt2(const ModelConfig& c) {
  return {{"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_embd", c.width},
          {"n_positions", c.context},
          {"n_ctx", c.context},
          {"vocab_size", c.vocab},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", "gelu_new"}};
}

}  // namespace

const Family kGpt2Family = {.model_type = "gpt2",
                            .architecture = "GPT2LMHeadModel",
                            .title = "GPT-2",
                            .builder = "gpt2",
                            .mlp = MlpKind::kGelu,
                            .read = read_gpt2,
                            .write = write_gpt2};

}  // namespace octavo::model_config

#include "base/error.h"
#include "models/config_fields.h"
#include "models/gpt2/gpt2.h"

namespace octavo::models::gpt2 {
namespace {

struct Named {
  const char* name;
  int64_t layers, heads, width;
};
constexpr Named kPresets[] = {{"gpt2", 12, 12, 768},
                              {"gpt2-medium", 24, 16, 1024},
                              {"gpt2-large", 36, 20, 1280},
                              {"gpt2-xl", 48, 25, 1600}};

}  // namespace

bool preset(const std::string& name, Config& config) {
  for (const auto& p : kPresets) {
    if (name != p.name) continue;
    config.layers = p.layers;
    config.heads = p.heads;
    config.width = p.width;
    return true;
  }
  return false;
}

Config from_hugging_face(const Json& config, const std::string& source) {
  ConfigFields fields(config, source, "GPT-2");
  if (json_string(config, "model_type", source) != "gpt2")
    fail(ExitCode::kUsage, "models", source, ": wanted model_type gpt2, found ",
         config.at("model_type").dump());
  Config result;
  result.layers = fields.count("n_layer", 1000);
  result.heads = fields.count("n_head", 1000);
  result.width = fields.count("n_embd", 1 << 20);
  result.vocab = fields.count("vocab_size", 1 << 24);
  result.context = fields.count("n_positions", 1 << 24);
  result.eps = fields.real_or("layer_norm_epsilon", result.eps);
  if (result.width % result.heads != 0)
    fail(ExitCode::kDamaged, "models", source, ": n_embd ", result.width,
         " is not a multiple of n_head ", result.heads);
  fields.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  fields.must_be("scale_attn_weights", {true});
  fields.must_be("scale_attn_by_inverse_layer_idx", {false});
  fields.must_be("reorder_and_upcast_attn", {false});
  fields.must_be("tie_word_embeddings", {true});
  fields.must_be("n_inner", {4 * result.width});
  // Rows for tokens of its own, which the first GPT-2 of pytorch-pretrained-bert added; without
  // such rows it does not matter whether they are predicted.
  fields.must_be("n_special", {0});
  fields.pass_general();
  fields.harmless({"predict_special_tokens", "n_ctx", "attn_pdrop", "embd_pdrop", "resid_pdrop",
                   "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                   "summary_type", "summary_use_proj"});
  fields.refuse_rest();
  return result;
}

}  // namespace octavo::models::gpt2

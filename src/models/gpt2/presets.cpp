#include "base/checked.h"
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

// Fields that may be there and change nothing we compute.
constexpr const char* kHarmless[] = {"architectures",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "pad_token_id",
                                     "initializer_range",
                                     "model_type",
                                     "n_ctx",
                                     "n_embd",
                                     "n_head",
                                     "n_layer",
                                     "n_positions",
                                     "vocab_size",
                                     "layer_norm_epsilon",
                                     "transformers_version",
                                     "use_cache",
                                     "torch_dtype",
                                     "dtype",
                                     "task_specific_params",
                                     "attn_pdrop",
                                     "embd_pdrop",
                                     "resid_pdrop",
                                     "summary_activation",
                                     "summary_first_dropout",
                                     "summary_proj_to_labels",
                                     "summary_type",
                                     "summary_use_proj",
                                     "_name_or_path"};

int64_t bounded(const Json& config, const char* name, int64_t max, const std::string& source) {
  const int64_t value = json_int(config, name, source);
  if (value < 1 || value > max)
    fail(ExitCode::kDamaged, "models", source, ": '", name, "' wanted in 1..", max, ", found ",
         value);
  return value;
}

// Refuses a field whose value is not the one we implement.
void check_field(const std::string& name, const Json& value, const std::string& source) {
  for (const char* harmless : kHarmless)
    if (name == harmless) return;
  const bool as_implemented =
      (name == "activation_function" && (value == "gelu_new" || value == "gelu_pytorch_tanh")) ||
      (name == "n_inner" && value.is_null()) || (name == "scale_attn_weights" && value == true) ||
      (name == "scale_attn_by_inverse_layer_idx" && value == false) ||
      (name == "reorder_and_upcast_attn" && value == false) ||
      (name == "add_cross_attention" && value == false) ||
      (name == "tie_word_embeddings" && value == true);
  if (!as_implemented)
    fail(ExitCode::kUsage, "models", source, ": '", name, "': ", value.dump(),
         " is not implemented for GPT-2 and may change its mathematics; remove the field if it has "
         "no effect");
}

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
  if (json_string(config, "model_type", source) != "gpt2")
    fail(ExitCode::kUsage, "models", source, ": wanted model_type gpt2, found ",
         config.at("model_type").dump());
  for (const auto& [name, value] : config.items()) check_field(name, value, source);
  Config result;
  result.layers = bounded(config, "n_layer", 1000, source);
  result.heads = bounded(config, "n_head", 1000, source);
  result.width = bounded(config, "n_embd", 1 << 20, source);
  result.vocab = bounded(config, "vocab_size", 1 << 24, source);
  result.context = bounded(config, "n_positions", 1 << 24, source);
  if (config.contains("layer_norm_epsilon")) {
    if (!config.at("layer_norm_epsilon").is_number())
      fail(ExitCode::kDamaged, "models", source, ": 'layer_norm_epsilon' wanted as a number");
    result.eps = config.at("layer_norm_epsilon").get<double>();
  }
  if (result.width % result.heads != 0)
    fail(ExitCode::kDamaged, "models", source, ": n_embd ", result.width,
         " is not a multiple of n_head ", result.heads);
  return result;
}

}  // namespace octavo::models::gpt2

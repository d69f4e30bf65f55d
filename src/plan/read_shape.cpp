#include "base/json.h"
#include "base/model_file.h"
#include "hub/hub.h"
#include "model_config/config_file.h"
#include "model_config/presets.h"
#include "plan/shape.h"

namespace octavo::plan {
namespace {

// What train refuses has a size all the same.
Shape shape_of_file(const fs::path& path, const std::string& name) {
  std::optional<Error> refusal;
  Shape shape = shape_of(model_config::read(read_json(path), path.string(), &refusal), name);
  if (refusal) shape.refusal = refusal->what();
  return shape;
}

}  // namespace

Shape shape_of(const model_config::ModelConfig& model, const std::string& name) {
  Shape shape;
  shape.name = name;
  shape.family = model.family;
  shape.layers = model.layers, shape.hidden = model.width, shape.ffn = model.mlp;
  shape.heads = model.heads, shape.kv_heads = model.kv_heads, shape.head_dim = model.head_dim;
  shape.tokens = model.vocab;
  shape.vocab = model_config::padded_vocab(model.vocab);
  shape.positions = model.is_gpt2() ? model.context : 0;
  shape.gated = model.family->gated();
  shape.tied = model.tied;
  shape.qkv_bias = model.qkv_bias, shape.out_bias = model.out_bias;
  shape.mlp_bias = model.mlp_bias;
  shape.window = model.window;
  for (int64_t i = 0; i < model.layers; ++i)
    shape.windowed_layers += model.window_of(i) > 0 ? 1 : 0;
  if (model.experts) {
    shape.experts = model.experts->count, shape.active_experts = model.experts->active;
    shape.expert_ffn = model.experts->mlp;
    for (int64_t i = 0; i < model.layers; ++i) shape.sparse.push_back(model.has_experts(i));
  }
  return shape;
}

Shape shape_of(const config::Settings& settings) {
  const std::string& name = settings.model_name;
  if (model_config::is_built_in(name))
    return shape_of(model_config::built_in(name, {.layers = settings.n_layer,
                                                  .heads = settings.n_head,
                                                  .width = settings.n_embd,
                                                  .vocab = vocabulary_of(settings),
                                                  .context = settings.max_seq_length}),
                    name);
  if (fs::exists(fs::path(name) / "config.json"))
    return shape_of_file(model_file(name, "config.json"), name);
  if (const auto preset = model_config::published(name))
    return shape_of(preset->config, preset->name);
  hub::refuse_other_family(name);
  hub::Options options = hub::model_options(settings);
  options.parts = hub::Parts::kTokenizer;
  return shape_of_file(hub::resolve_model(name, options) / "config.json", name);
}

}  // namespace octavo::plan

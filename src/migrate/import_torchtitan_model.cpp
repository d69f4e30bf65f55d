// torchtitan names a model by its family and flavor; the sizes are in its code:
// torchtitan/models/{llama3,qwen3}/__init__.py of github.com/pytorch/torchtitan at 00f555e1114a and
// 0310b491596b. Llama 3's are those of Llama 3.1 on the hub.

#include <algorithm>

#include "base/error.h"
#include "migrate/import_builder.h"
#include "model_config/presets.h"

namespace octavo::migrate {
namespace {

using enum Finding::Verdict;

struct Flavor {
  std::string_view family, flavor;
  std::string_view published;  // a name of model_config's presets; "": the sizes that follow
  int64_t layers = 0, width = 0, mlp = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
};

constexpr Flavor kFlavors[] = {
    {"llama3", "1B", "meta-llama/Llama-3.2-1B"},
    {"llama3", "3B", "meta-llama/Llama-3.2-3B"},
    {"llama3", "8B", "meta-llama/Llama-3.1-8B"},
    {"llama3", "70B", "meta-llama/Llama-3.1-70B"},
    {"llama3", "405B", "meta-llama/Llama-3.1-405B"},
    {"llama3", "debugmodel", "", 6, 256, 768, 16, 16, 16, 2048},
    {"qwen3", "0.6B", "Qwen/Qwen3-0.6B"},
    {"qwen3", "1.7B", "Qwen/Qwen3-1.7B"},
    {"qwen3", "4B", "Qwen/Qwen3-4B"},
    {"qwen3", "8B", "Qwen/Qwen3-8B"},
    {"qwen3", "14B", "Qwen/Qwen3-14B"},
    {"qwen3", "32B", "Qwen/Qwen3-32B"},
};

std::string small_letters(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

const Flavor* find_flavor(const std::string& family, const std::string& flavor) {
  // 8B_flex and 8B_varlen are 8B with another attention kernel.
  const std::string wanted = small_letters(flavor.substr(0, flavor.find('_')));
  for (const Flavor& known : kFlavors)
    if (known.family == family && small_letters(std::string(known.flavor)) == wanted) return &known;
  return nullptr;
}

struct NamedModel {
  const ForeignEntry* reason = nullptr;
  std::string family, flavor;
};

// [model] name and flavor, or model_registry("8B") in a function whose name begins with the family.
NamedModel named_model(const Importer& importer) {
  constexpr ForeignForm kForm = ForeignForm::kTorchtitan;
  NamedModel model;
  for (const char* key : {"model.flavor", "model_spec.0"})
    if (model.reason == nullptr) model.reason = importer.entry_of(kForm, key);
  if (model.reason == nullptr) return model;
  model.flavor = importer.word(*model.reason);
  model.family = importer.word_of(kForm, "model.name");
  const std::string maker = importer.word_of(kForm, "config_name");
  if (model.family.empty()) model.family = maker.substr(0, maker.find('_'));
  // SFT and other recipes name their task first: the assets say whose model it is.
  const std::string assets = small_letters(importer.word_of(kForm, "hf_assets_path"));
  if (assets.find("llama-3") != assets.npos) model.family = "llama3";
  if (assets.find("qwen3") != assets.npos) model.family = "qwen3";
  if (model.family.empty()) model.family = "llama3";  // the default of [model] name
  return model;
}

ImportedModel imported(const Flavor& flavor) {
  ImportedModel model;
  model.name = str(flavor.family, " ", flavor.flavor);
  model.config = {.family = &model_config::kLlamaFamily,
                  .layers = flavor.layers,
                  .width = flavor.width,
                  .mlp = flavor.mlp,
                  .heads = flavor.heads,
                  .kv_heads = flavor.kv_heads,
                  .head_dim = flavor.head_dim,
                  .vocab = flavor.vocab,
                  .context = 131072,
                  .rope = {.theta = 500000, .scaling = {}}};
  return model;
}

}  // namespace

void settle_torchtitan_model(Importer& importer) {
  importer.result.program = "torchtitan";
  if (importer.result.stack == "fused") importer.result.stack = "eager";  // compile is off there
  for (const char* key : {"model.name", "hf_assets_path", "config_name"})
    if (const ForeignEntry* entry = importer.entry_of(ForeignForm::kTorchtitan, key))
      importer.leave(*entry, "whose model it is; the flavor says the sizes");
  const NamedModel model = named_model(importer);
  if (model.reason == nullptr) return;
  const Flavor* flavor = find_flavor(model.family, model.flavor);
  if (flavor == nullptr) {
    importer.drop(*model.reason, "a model of torchtitan's that octavo does not have");
    return importer.find(
        kRefused, "other_model", *model.reason,
        str(shown_text(model.family), " is no model of octavo's (llama3 and dense qwen3)"),
        "its layers cannot be trained or forecast from such a file",
        "another model, or keep torchtitan for this one");
  }
  if (flavor->published.empty()) return name_model(importer, *model.reason, imported(*flavor));
  importer.map_to(*model.reason, "model_name", std::string(flavor->published));
  importer.map_to(*model.reason, "init_from", "random", "torchtitan trains from nothing");
}

}  // namespace octavo::migrate

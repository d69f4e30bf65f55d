#pragma once
// Models that have a name here: those that train makes from nothing, and published ones that people
// plan for before they have their files.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_config/model_config.h"

namespace octavo::model_config {

struct Gpt2Sizes {
  int64_t layers = 12, heads = 12, width = 768, vocab = 50257, context = 1024;
};
ModelConfig gpt2(const Gpt2Sizes& sizes);

// gpt2, gpt2-medium, gpt2-large, gpt2-xl, custom: no folder and no name on the hub.
bool is_built_in(std::string_view name);
// One of them with the layers, heads and width of the keys; 0: the preset's own. custom has none,
// and wants all three.
ModelConfig built_in(std::string_view name, const Gpt2Sizes& keys);

struct Preset {
  std::string name;
  ModelConfig config;
};
// By any spelling and with any owner: "llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct",
// "Meta Llama 3.1 8B", "llama31-8b"; GPT-2 too ("openai-community/gpt2").
std::optional<Preset> published(std::string_view name);
std::vector<std::string_view> published_names();  // as the hub writes them

// What the hub calls a published model that is named without an owner: "llama-3.1-8b-instruct" is
// "meta-llama/Llama-3.1-8B-Instruct". Nothing when it is none of them.
std::optional<std::string> hub_name(std::string_view given);

// The family of a well-known model that is not implemented here ("google/gemma-2-9b"), ""
// otherwise.
std::string_view unsupported_family(std::string_view name);

}  // namespace octavo::model_config

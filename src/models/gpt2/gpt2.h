#pragma once
// GPT-2: learned positions, pre-norm blocks, tied head.

#include "models/model.h"

namespace octavo::models::gpt2 {

struct Config {
  int64_t layers = 12, heads = 12, width = 768;
  int64_t vocab = 50257, context = 1024;
  double eps = 1e-5;
};

// gpt2, gpt2-medium, gpt2-large, gpt2-xl; false when the name is none of them.
bool preset(const std::string& name, Config& config);
// From a Hugging Face config.json; a field that changes the mathematics and is not implemented is
// refused.
Config from_hugging_face(const Json& config, const std::string& source);

std::unique_ptr<Model> make(const Config& config, const engine::Engine& engine,
                            const nn::Storage& storage = {});

}  // namespace octavo::models::gpt2

#pragma once
// GPT-2: learned positions, pre-norm blocks, tied head.

#include "models/model.h"

namespace octavo::models::gpt2 {

std::unique_ptr<Model> make(const ModelConfig& config, const engine::Engine& engine,
                            const nn::Storage& storage);

}  // namespace octavo::models::gpt2

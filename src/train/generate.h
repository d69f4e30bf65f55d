#pragma once
// Text from a model, one token at a time.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace octavo::train {

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  double temperature = 0.8;  // 0: the most likely token
  int64_t top_k = 50;        // 0: all
  uint64_t seed = 0;
};

// Calls `on_token` with each new id; stops after the end-of-document token. Returns the new ids.
std::vector<tokenizer::TokenId> generate(const engine::Engine& engine, const models::Model& model,
                                         const tokenizer::Tokenizer& tokenizer,
                                         const std::string& prompt, const GenerateOptions& options,
                                         const std::function<void(tokenizer::TokenId)>& on_token);

}  // namespace octavo::train

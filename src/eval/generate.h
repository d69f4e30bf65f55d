#pragma once
// Text from a model, one token at a time.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace octavo::eval {

struct GenerateOptions {
  int64_t max_new_tokens = 100;
  double temperature = 0.8;  // 0: the most likely token
  int64_t top_k = 50;        // 0: all
  double top_p = 1;          // draw from the most likely tokens that have this probability together
  uint64_t seed = 0;
  std::vector<tokenizer::TokenId> stop;  // any of these ends the text; none of them is given out
  // Ids that are never drawn, ascending: those that no token has.
  std::vector<tokenizer::TokenId> never;
};

// The rows of a model's vocabulary that the tokenizer has no token for: there is nothing to print.
std::vector<tokenizer::TokenId> ids_without_token(const models::Model& model,
                                                  const tokenizer::Tokenizer& tokenizer);

// A text that grows. The keys and values of what was read are kept, so that each token is computed
// once. When the model's context is full, the older half is forgotten, with a line that says so.
class Generator {
 public:
  Generator(const engine::Engine& engine, const models::Model& model);

  // Reads `ids`, then draws tokens, calling `on_token` with each. Returns the new ids.
  std::vector<tokenizer::TokenId> continue_text(
      const std::vector<tokenizer::TokenId>& ids, const GenerateOptions& options,
      const std::function<void(tokenizer::TokenId)>& on_token);

 private:
  at::Tensor logits_after(std::vector<tokenizer::TokenId> ids);
  // Whether there is room for so many tokens; else all of text_ must be read anew.
  bool make_space(int64_t tokens);

  const engine::Engine& engine_;
  const models::Model& model_;
  std::vector<tokenizer::TokenId> text_;  // everything read or drawn
  nn::KvCache cache_;
  uint64_t drawn_ = 0;
  bool said_full_ = false;  // that the context is
};

// Continues a prompt; an empty one is the start of a document. The end-of-document token ends it
// too.
std::vector<tokenizer::TokenId> generate(const engine::Engine& engine, const models::Model& model,
                                         const tokenizer::Tokenizer& tokenizer,
                                         const std::string& prompt, GenerateOptions options,
                                         const std::function<void(tokenizer::TokenId)>& on_token);

}  // namespace octavo::eval

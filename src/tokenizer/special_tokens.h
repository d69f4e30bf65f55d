#pragma once
// Which tokens begin and end a text of a model, as its folder says in tokenizer_config.json,
// generation_config.json and config.json. Every file and every field may be missing.

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

struct SpecialTokens {
  std::optional<TokenId> bos, eos;
  // Generation ends at any of these: eos, and what the model's makers add (Llama-3's <|eot_id|>).
  // In the order of the files, each once.
  std::vector<TokenId> stop;
};

// The folder of a tokenizer that was given as a folder or a file of it; empty for `bytes`.
fs::path folder_of(const std::string& tokenizer_name);

// tokenizer_config.json names tokens by their text, which `tokenizer` turns into ids; it goes
// before generation_config.json, which goes before config.json. eos_token_id may be a number or a
// list of them.
SpecialTokens read_special_tokens(const fs::path& folder, const Tokenizer& tokenizer);

}  // namespace octavo::tokenizer

#pragma once
// A tokenizer.json, checked. Whatever in the file would change the ids and is not implemented here
// is refused: a tokenizer that is nearly right is worse than none.

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace octavo::tokenizer {

struct HfFile {
  struct Token {
    std::string bytes;  // what it decodes to; with decoder steps, what they begin with
    bool known = false;
    bool special = false;
  };
  std::vector<Token> tokens;  // by id
  Symbols symbols;
  std::vector<Merge> merges;
  ByteMap whole_words;  // filled when the file says ignore_merges
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<Stage> stages;
  std::vector<DecoderStep> decoder;     // empty: byte-level
  std::vector<TokenId> prefix, suffix;  // of the post-processor's single-sequence template
};

// `source` names the file in messages.
HfFile parse_hf_file(std::string_view json, std::string_view source);

}  // namespace octavo::tokenizer

#pragma once
// From the texts of tokens to text, for vocabularies that are not byte-level: the steps of a
// tokenizer.json's decoder, one after the other over all tokens.

#include <string>
#include <vector>

namespace octavo::tokenizer {

struct DecoderStep {
  enum class Kind {
    kReplace,       // each `pattern` in a token with `content`
    kByteFallback,  // "<0xE2>" is a byte
    kFuse,          // all tokens become one
    kStrip,         // up to `start` and `stop` times `pattern` at both ends of each token
    kMetaspace,     // as kReplace; in the first token `drops_first` leaves `pattern` out
  };
  Kind kind;
  std::string pattern, content;
  size_t start = 0, stop = 0;
  bool drops_first = false;
};

// `continues`: the tokens stand behind others, so that nothing is taken from their beginning, and
// bytes that make no character are given as they are, for what comes next may complete it. Else a
// run of bytes that is not UTF-8 becomes one U+FFFD for each byte, as in the Hugging Face library.
std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                          bool continues);

}  // namespace octavo::tokenizer

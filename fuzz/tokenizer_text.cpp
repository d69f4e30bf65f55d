// Any text through each scanner and through PCRE2: the ids give the text back.
#include "fuzz/harness.h"
#include "fuzz/small_tokenizer.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static const std::unique_ptr<tokenizer::Tokenizer> tokenizers[] = {
      fuzz::small_tokenizer(tokenizer::kGpt2Pattern, false),
      fuzz::small_tokenizer(tokenizer::kLlama3Pattern, false),
      fuzz::small_tokenizer(tokenizer::kQwen2Pattern, true),
      fuzz::small_tokenizer(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+|\p{N}{1,3}|\s+)",
                            false),
      fuzz::small_tokenizer(R"(\S+|\s+)", false, fuzz::Digits::kTogether),
      fuzz::small_tokenizer(tokenizer::kGpt2Pattern, false, fuzz::Digits::kAlone)};
  for (size_t i = 0; i < std::size(tokenizers); ++i)
    fuzz::refusal_of([&] {
      std::vector<tokenizer::TokenId> plain, ids;
      tokenizers[i]->encode_plain(input, plain);
      const bool changes_text = i == 2 || i >= 4;  // form C, a space in front
      fuzz::check(changes_text || tokenizers[i]->decode(plain) == input, "another text came back");
      tokenizers[i]->encode(input, ids);
      fuzz::check(ids.size() <= 4 * input.size(), "more ids than there can be");
      tokenizers[i]->decode(ids, true);
    });
}

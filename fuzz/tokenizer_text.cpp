// A text through a scanner or PCRE2, by its first byte: the ids give the text back.
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
  if (input.empty()) return;
  const size_t i = static_cast<unsigned char>(input[0]) % std::size(tokenizers);
  const std::string_view text = input.substr(1);
  fuzz::refusal_of([&] {
    std::vector<tokenizer::TokenId> plain, ids;
    tokenizers[i]->encode_plain(text, plain);
    const bool changes_text = i == 2 || i >= 4;  // form C, a space in front
    fuzz::check(changes_text || tokenizers[i]->decode(plain) == text, "another text came back");
    tokenizers[i]->encode(text, ids);
    fuzz::check(ids.size() <= 4 * text.size(), "more ids than there can be");
    tokenizers[i]->decode(ids, true);
  });
}

// A tokenizer.json, then (behind a line of ====) a text that it encodes and decodes.
#include "fuzz/harness.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/hf_file.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  const auto [json, text] = fuzz::two_parts(input);
  fuzz::refusal_of([&, json = json, text = text] {
    const tokenizer::BpeTokenizer tokenizer("input", "",
                                            tokenizer::parse_hf_file(json, "tokenizer.json"));
    // An encoder clears 2 MB before its first word. tokenizer_text is for encoding; here it is done
    // with one of 64.
    if (input.size() % 64 != 0) return;
    std::vector<tokenizer::TokenId> ids;
    tokenizer.encode_with_special(text, ids);
    // A normalizer puts up to a kilobyte in front of each text between added tokens, and may make
    // it 64 times as long, besides what form C does.
    fuzz::check(ids.size() <= (size_t{1} << 18) * (text.size() + 1) + json.size(),
                "more ids than there can be");
    for (const tokenizer::TokenId id : ids)
      fuzz::check(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
    tokenizer.decode(ids, false);
    tokenizer.decode_more(ids, true);
  });
}

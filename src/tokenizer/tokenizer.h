#pragma once
// Text to token ids and back. Two implementations: BPE read from a Hugging Face tokenizer.json
// (byte-level, or of characters with byte fallback), and `bytes` (id = byte, 256 = end of
// document).

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/place.h"

namespace octavo::tokenizer {

using TokenId = int32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Appends the ids of `text` to `out`. Added tokens in the text are recognised as the Hugging Face
  // library does; no post-processing (BOS and the like). Thread-safe. Invalid UTF-8 is refused by
  // BPE and taken as it is by `bytes`.
  virtual void encode(std::string_view text, std::vector<TokenId>& out, Place place) const = 0;
  void encode(std::string_view text, std::vector<TokenId>& out) const {
    encode(text, out, Place::kStart);
  }
  // As encode, but text is text: what is spelled like a special token stays text. Returns how many
  // places are. Added tokens that are not special are recognised (`encode_special_tokens` of the
  // Hugging Face library, `split_special_tokens` of transformers).
  virtual size_t encode_text(std::string_view text, std::vector<TokenId>& out,
                             Place place) const = 0;
  size_t encode_text(std::string_view text, std::vector<TokenId>& out) const {
    return encode_text(text, out, Place::kStart);
  }
  // As encode, but no added token is recognised: for untrusted text inside a chat template.
  virtual void encode_plain(std::string_view text, std::vector<TokenId>& out,
                            Place place) const = 0;
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const {
    encode_plain(text, out, Place::kStart);
  }
  // The added token that is written like this, if there is one.
  virtual std::optional<TokenId> added_token(std::string_view content) const = 0;
  // What the file's post-processor puts in front of a text (Llama-3's <|begin_of_text|>) and behind
  // it; mostly nothing.
  virtual const std::vector<TokenId>& begin_ids() const = 0;
  virtual const std::vector<TokenId>& end_ids() const = 0;
  // How special tokens are written. When there are none, encode and encode_text never differ.
  virtual const std::vector<std::string>& special_tokens() const = 0;
  // As encode, with begin_ids and end_ids around it.
  virtual void encode_with_special(std::string_view text, std::vector<TokenId>& out) const = 0;
  // The bytes of the ids; unknown ids are an error. `skip_special` leaves special added tokens out.
  virtual std::string decode(const std::vector<TokenId>& ids, bool skip_special = false) const = 0;
  // The same for ids that stand behind others, as when text is printed token by token: no space is
  // taken from their beginning, and part of a character stays what it is.
  virtual std::string decode_more(const std::vector<TokenId>& ids,
                                  bool skip_special = false) const = 0;
  // Whether decode() has bytes for it: ids of a vocabulary may have gaps.
  virtual bool knows(TokenId id) const = 0;
  virtual int64_t vocab_size() const = 0;       // one more than the largest id
  virtual TokenId end_of_document() const = 0;  // separates documents in shards (GPT-2: 50256)
  virtual std::string name() const = 0;         // as the user gave it
  virtual std::string fingerprint() const = 0;  // hash of the file: shards remember what made them
};

// `name` is "bytes", a tokenizer.json, or a folder that holds one.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name);

}  // namespace octavo::tokenizer

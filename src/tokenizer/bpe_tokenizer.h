#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hf_file.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

// BPE as a tokenizer.json describes it.
class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(std::string name, std::string fingerprint, HfFile file);

  using Tokenizer::encode, Tokenizer::encode_text, Tokenizer::encode_plain;
  void encode(std::string_view text, std::vector<TokenId>& out, Place place) const override;
  size_t encode_text(std::string_view text, std::vector<TokenId>& out, Place place) const override;
  void encode_plain(std::string_view text, std::vector<TokenId>& out, Place place) const override;
  std::optional<TokenId> added_token(std::string_view content) const override;
  const std::vector<TokenId>& begin_ids() const override { return prefix_; }
  const std::vector<TokenId>& end_ids() const override { return suffix_; }
  const std::vector<std::string>& special_tokens() const override { return special_tokens_; }
  void encode_with_special(std::string_view text, std::vector<TokenId>& out) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const override;
  std::string decode_more(const std::vector<TokenId>& ids, bool skip_special) const override;
  bool knows(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  TokenId end_of_document() const override;
  std::string name() const override { return name_; }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  struct Scratch {
    PreTokenizer::Scratch words;
    Bpe::Scratch bpe;
    std::vector<AddedTokenMatcher::Piece> pieces, inner;
    std::string normalized;
  };
  // Borrowed for one call: as many exist as calls ever ran at once.
  class Lease;

  static void check_text(std::string_view text);
  // Returns how many special tokens were left as text.
  size_t encode_with(std::string_view text, AddedTokenMatcher::Find find, Place place,
                     std::vector<TokenId>& out) const;
  size_t encode_piece(std::string_view piece, AddedTokenMatcher::Find find, Place place,
                      Scratch& scratch, std::vector<TokenId>& out) const;
  std::string decode_at(const std::vector<TokenId>& ids, bool skip_special, bool continues) const;

  std::string name_, fingerprint_;
  std::vector<HfFile::Token> tokens_;
  std::vector<TokenId> prefix_, suffix_;
  std::vector<std::string> special_tokens_;
  std::optional<TokenId> end_of_document_;
  std::map<std::string, TokenId, std::less<>> added_ids_;
  std::vector<DecoderStep> decoder_;
  Normalizer normalizer_;
  AddedTokenMatcher raw_added_, normalized_added_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace octavo::tokenizer

#pragma once
// Tokens that stand in the text as they are and never go through BPE ("<|endoftext|>").

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes the white space before or after along
  bool normalized = false;              // looked for in the normalised text
  bool special = false;
};

// Finds the tokens of one set: leftmost first, longest at one place, as the Hugging Face library
// does.
class AddedTokenMatcher {
 public:
  // A token (its text left empty), or (id < 0) text between tokens.
  struct Piece {
    TokenId id;
    std::string_view text;
  };

  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  enum class Find {
    kAll,
    kOrdinary,  // special tokens stay text
    kNone,
  };
  // Cuts `text` into pieces in order; no text between tokens is empty. Returns how many special
  // tokens were seen and stayed text (kOrdinary).
  size_t split(std::string_view text, std::vector<Piece>& pieces, Find find = Find::kAll) const;

 private:
  struct Match {
    const AddedToken* token;
    size_t begin, end;
  };
  std::optional<Match> find_next(std::string_view text, size_t from) const;
  bool touches_word(std::string_view text, const Match& match) const;
  void strip(std::string_view text, size_t floor, Match& match) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> first_{};
  // A trie: (node << 8 | byte) to node; ends_[node] is an index into tokens_ plus one.
  std::unordered_map<uint64_t, uint32_t> children_;
  std::vector<uint32_t> ends_;
  const CharClasses& classes_ = CharClasses::shared();
  std::optional<Regex> word_character_;
};

}  // namespace octavo::tokenizer

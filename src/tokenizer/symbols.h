#pragma once
// What BPE begins with: a token for each byte of a word, or for each of its characters.

#include <array>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

struct Symbols {
  static constexpr TokenId kNone = -1;

  // Byte-level: the token of each byte; a byte without one is dropped.
  Symbols(const std::array<TokenId, 256>& tokens) : bytes(tokens) {}  // NOLINT: is what it is
  Symbols() { bytes.fill(kNone); }

  void append(std::string_view word, std::vector<TokenId>& ids) const;

  // Of each byte; by characters, those that stand for a character without a token (byte fallback),
  // if each of its bytes has one.
  std::array<TokenId, 256> bytes;
  bool by_characters = false;
  std::vector<TokenId> characters;  // by code point, up to the last that has a token
  // For a character that has neither; kNone drops it. `fuses_unknown`: once for several in a row.
  TokenId unknown = kNone;
  bool fuses_unknown = false;

 private:
  void append_characters(std::string_view word, std::vector<TokenId>& ids) const;
  bool append_fallback(std::string_view character, std::vector<TokenId>& ids) const;
};

}  // namespace octavo::tokenizer

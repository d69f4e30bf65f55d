#include "tokenizer/symbols.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace octavo::tokenizer {

void Symbols::append(std::string_view word, std::vector<TokenId>& ids) const {
  if (by_characters) return append_characters(word, ids);
  for (const char c : word) {
    const TokenId id = bytes[static_cast<unsigned char>(c)];
    if (id != kNone) ids.push_back(id);
  }
}

bool Symbols::append_fallback(std::string_view character, std::vector<TokenId>& ids) const {
  const auto token = [this](char c) { return bytes[static_cast<unsigned char>(c)]; };
  if (std::any_of(character.begin(), character.end(), [&](char c) { return token(c) == kNone; }))
    return false;
  for (const char c : character) ids.push_back(token(c));
  return true;
}

// An unknown token waits for the next character that has one of its own: the Hugging Face library
// puts bytes that come meanwhile in front of it.
void Symbols::append_characters(std::string_view word, std::vector<TokenId>& ids) const {
  bool unknown_waits = false;
  for (size_t at = 0; at < word.size();) {
    const CodePoint c = decode_utf8(word.data() + at);
    const std::string_view character = word.substr(at, c.length);
    at += c.length;
    const TokenId id = c.value < characters.size() ? characters[c.value] : kNone;
    if (id != kNone) {
      if (unknown_waits) ids.push_back(unknown);
      unknown_waits = false;
      ids.push_back(id);
    } else if (!append_fallback(character, ids) && unknown != kNone) {
      if (unknown_waits && !fuses_unknown) ids.push_back(unknown);
      unknown_waits = true;
    }
  }
  if (unknown_waits) ids.push_back(unknown);
}

}  // namespace octavo::tokenizer

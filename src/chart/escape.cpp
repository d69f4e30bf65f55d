#include "chart/escape.h"

#include <cstdint>

namespace octavo::chart {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

const char* entity_of(char c) {
  switch (c) {
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '&':
      return "&amp;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return nullptr;
  }
}

// XML 1.0 has no control characters but these three, no surrogates, no U+FFFE, no U+FFFF.
bool allowed_in_xml(uint32_t code) {
  if (code < 0x20) return code == '\t' || code == '\n' || code == '\r';
  return code != 0x7F && (code < 0xD800 || code > 0xDFFF) && code != 0xFFFE && code != 0xFFFF;
}

uint32_t decoded(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  uint32_t code = static_cast<unsigned char>(character[0]) & (0xFFu >> (character.size() + 1));
  for (char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return code;
}

}  // namespace

size_t character_at(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned char lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  // Longer than needed, or beyond the last code point.
  const uint32_t code = decoded(text.substr(0, length));
  const uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  return code >= least && code <= 0x10FFFF ? length : 0;
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = character_at(text);
    if (length == 0 || !allowed_in_xml(decoded(text.substr(0, length))))
      out += kReplacement;
    else if (const char* entity = entity_of(text[0]))
      out += entity;
    else
      out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace octavo::chart

#include "jinja/string_literal.h"

#include <cctype>
#include <cstdint>
#include <utility>

#include "base/utf8.h"

namespace octavo::jinja {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return std::isxdigit(static_cast<unsigned char>(c)) != 0 ? (c | 32) - 'a' + 10 : -1;
}

// Escapes of one letter.
constexpr std::pair<char, std::string_view> kLetters[] = {
    {'\n', ""},  {'\\', "\\"}, {'\'', "'"}, {'"', "\""}, {'a', "\a"}, {'b', "\b"},
    {'f', "\f"}, {'n', "\n"},  {'r', "\r"}, {'t', "\t"}, {'v', "\v"}};

// Hexadecimal digits of \x, \u and \U.
std::string append_hex_escape(std::string_view spelled, size_t& at, size_t digits,
                              std::string& out) {
  uint32_t point = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int value = at + i < spelled.size() ? hex_value(spelled[at + i]) : -1;
    if (value < 0) return "an escape of too few hexadecimal digits in a string";
    point = point * 16 + static_cast<uint32_t>(value);
  }
  if (point > 0x10FFFF) return "an escape beyond Unicode in a string";
  if (point >= 0xD800 && point <= 0xDFFF)
    return "half a surrogate pair in a string is not supported";
  at += digits;
  append_utf8(point, out);
  return "";
}

void append_octal(std::string_view spelled, size_t& at, std::string& out) {
  uint32_t point = 0;
  for (int i = 0; i < 3 && at < spelled.size() && spelled[at] >= '0' && spelled[at] <= '7'; ++i)
    point = point * 8 + static_cast<uint32_t>(spelled[at++] - '0');
  append_utf8(point, out);
}

}  // namespace

std::string unescape(std::string_view spelled, std::string& out) {
  for (size_t at = 0; at < spelled.size();) {
    if (spelled[at] != '\\' || at + 1 == spelled.size()) {
      out += spelled[at++];
      continue;
    }
    const char letter = spelled[at + 1];
    if (letter >= '0' && letter <= '7') {
      append_octal(spelled, ++at, out);
      continue;
    }
    if (letter == 'N') return "named characters (\\N) in strings are not supported";
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    at += 2;
    if (digits > 0) {
      if (std::string wrong = append_hex_escape(spelled, at, digits, out); !wrong.empty())
        return wrong;
      continue;
    }
    bool known = false;
    for (const auto& [name, meaning] : kLetters)
      if (name == letter) {
        out += meaning;
        known = true;
      }
    if (!known) out += {'\\', letter};  // may be the first byte of a character: the others follow
  }
  return "";
}

}  // namespace octavo::jinja

#include "tokenizer/unicode.h"

#include <algorithm>
#include <cstring>

namespace octavo::tokenizer {
namespace {

// White_Space of Unicode; unchanged since 6.3, when U+180E left it.
constexpr CodeRange kSpaces[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

bool contains(std::span<const CodeRange> ranges, uint32_t code_point) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= std::prev(after)->last;
}

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Length of the well-formed sequence at `p`, or 0.
size_t sequence_length(const unsigned char* p, size_t left) {
  const unsigned char lead = p[0];
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (left < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(p[i])) return 0;
  if (lead == 0xE0 && p[1] < 0xA0) return 0;   // overlong
  if (lead == 0xED && p[1] >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && p[1] < 0x90) return 0;   // overlong
  if (lead == 0xF4 && p[1] >= 0x90) return 0;  // above U+10FFFF
  return length;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 16) {
      uint64_t words[2];
      std::memcpy(words, data + at, sizeof(words));
      if (((words[0] | words[1]) & 0x8080808080808080u) == 0) {
        at += 16;
        continue;
      }
    }
    const size_t stop = std::min(text.size(), at + 16);
    while (at < stop) {
      const size_t length = sequence_length(data + at, text.size() - at);
      if (length == 0) return at;
      at += length;
    }
  }
  return std::string_view::npos;
}

CharClasses::CharClasses() : table_(kTableSize, kOther) {
  const auto mark = [this](std::span<const CodeRange> ranges, uint8_t value) {
    for (const CodeRange& range : ranges)
      for (uint32_t c = range.first; c <= range.last && c < kTableSize; ++c) table_[c] = value;
  };
  constexpr CodeRange kAsciiLetters[] = {{'A', 'Z'}, {'a', 'z'}};
  constexpr CodeRange kAsciiDigits[] = {{'0', '9'}};
  mark(kAsciiLetters, kLetter);
  mark(kAsciiDigits, kNumber);
  mark(letter_ranges(), kLetter);
  mark(number_ranges(), kNumber);
  mark(kSpaces, kSpace);
  table_['\r'] = table_['\n'] = kSpace | kNewline;
}

const CharClasses& CharClasses::shared() {
  static const CharClasses classes;
  return classes;
}

uint8_t CharClasses::search(uint32_t code_point) {
  if (contains(letter_ranges(), code_point)) return kLetter;
  if (contains(number_ranges(), code_point)) return kNumber;
  return kOther;
}

}  // namespace octavo::tokenizer

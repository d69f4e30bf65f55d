#pragma once
// UTF-8 and the four character classes that pre-tokenizer patterns ask about. The classes come from
// a table pinned to one Unicode version, because token ids must not depend on the libraries of a
// machine.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::tokenizer {

inline constexpr char kUnicodeVersion[] = "16.0";

struct CodeRange {
  uint32_t first, last;
};
// Above ASCII, sorted. \p{L} and \p{N} of Unicode kUnicodeVersion.
std::span<const CodeRange> letter_ranges();
std::span<const CodeRange> number_ranges();

// Offset of the first byte that is not well-formed UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

struct CodePoint {
  uint32_t value;
  uint32_t length;  // bytes
};

// The text must be valid UTF-8.
inline CodePoint decode_utf8(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

enum CharClass : uint8_t {
  kLetter = 1,
  kNumber = 2,
  kSpace = 4,
  kNewline = 8,  // \r or \n; always together with kSpace
  kOther = 16,
};

class CharClasses {
 public:
  CharClasses();
  static const CharClasses& shared();  // the table is made once
  uint8_t ascii(unsigned char byte) const { return table_[byte]; }
  uint8_t of(uint32_t code_point) const {
    return code_point < kTableSize ? table_[code_point] : search(code_point);
  }

 private:
  static constexpr uint32_t kTableSize = 0x20000;  // planes 0 and 1; the rest is rare
  static uint8_t search(uint32_t code_point);
  std::vector<uint8_t> table_;
};

}  // namespace octavo::tokenizer

#pragma once
// GPT-2's printable alphabet: tokenizer.json writes each byte as one visible character (space is
// U+0120).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::tokenizer {

class ByteAlphabet {
 public:
  ByteAlphabet();
  // The bytes that `token` stands for; nothing when a character is outside the alphabet.
  std::optional<std::string> to_bytes(std::string_view token) const;
  // The character of a byte, as UTF-8.
  std::string to_char(uint8_t byte) const;

 private:
  std::array<uint16_t, 256> char_of_{};
  std::array<int16_t, 0x144> byte_of_{};  // -1: not in the alphabet
};

}  // namespace octavo::tokenizer

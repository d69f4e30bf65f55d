#include "tokenizer/byte_alphabet.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    char_of_[byte] = visible ? static_cast<uint16_t>(byte) : next++;
    byte_of_[char_of_[byte]] = static_cast<int16_t>(byte);
  }
}

std::optional<std::string> ByteAlphabet::to_bytes(std::string_view token) const {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const CodePoint c = decode_utf8(token.data() + at);
    if (c.value >= byte_of_.size() || byte_of_[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_[c.value]));
    at += c.length;
  }
  return bytes;
}

std::string ByteAlphabet::to_char(uint8_t byte) const {
  std::string out;
  append_utf8(char_of_[byte], out);
  return out;
}

}  // namespace octavo::tokenizer

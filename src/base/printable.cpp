#include "base/printable.h"

namespace octavo {

std::string printable(std::string_view text, size_t most, bool keep_lines) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  const auto escape = [&](unsigned char byte) {
    shown += "\\x";
    shown += kHex[byte >> 4];
    shown += kHex[byte & 15];
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0) != 0x80;
    if (shown.size() >= most && starts_character) return shown + "…";
    const bool c1 = byte == 0xC2 && i + 1 < text.size() &&
                    static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                    static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (keep_lines && (byte == '\n' || byte == '\t')) {
      shown += text[i];
    } else if (c1) {
      escape(byte);
      escape(static_cast<unsigned char>(text[++i]));
    } else if (byte < 0x20 || byte == 0x7F) {
      escape(byte);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace octavo

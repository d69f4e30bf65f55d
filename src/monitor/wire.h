#pragma once
// Bytes as TensorBoard and W&B want them: checksums and protobuf's wire format. By hand, because
// libtorch_cpu exports protobuf's symbols and a second protobuf in the process would meet them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::monitor {

// How protobuf keeps a field's value.
namespace wire_type {
inline constexpr int kVarint = 0, kEightBytes = 1, kLength = 2, kFourBytes = 5;
}

uint32_t crc32(std::string_view bytes);          // IEEE, as zlib
uint32_t crc32c(std::string_view bytes);         // Castagnoli
uint32_t masked_crc32c(std::string_view bytes);  // as TFRecord files keep it

// A number in its bytes, the lowest first.
template <typename T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i) & 0xFF));
}

// Half a character at a sample's end is not for files that promise UTF-8: it becomes U+FFFD.
std::string valid_utf8(const std::string& text);

// A protobuf message, field by field.
class Message {
 public:
  Message& number(int field, int64_t value);
  Message& real(int field, double value);
  Message& short_real(int field, float value);
  Message& text(int field, std::string_view value);  // a string, bytes or an encoded message
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  Message& reals(int field, const std::vector<double>& values);  // packed
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);
  void tag(int field, int wire_type);
  std::string bytes_;
};

}  // namespace octavo::monitor

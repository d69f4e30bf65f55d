#include "monitor/wire.h"

#include <array>
#include <bit>

#include "base/json.h"

namespace octavo::monitor {
namespace {

constexpr std::array<uint32_t, 256> crc_table(uint32_t reversed_polynomial) {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ ((value & 1) != 0 ? reversed_polynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kIeee = crc_table(0xEDB88320);
constexpr std::array<uint32_t, 256> kCastagnoli = crc_table(0x82F63B78);

uint32_t crc_with(const std::array<uint32_t, 256>& table, std::string_view bytes) {
  uint32_t value = 0xFFFFFFFF;
  for (const char c : bytes) value = value >> 8 ^ table[(value ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~value;
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  return crc_with(kIeee, bytes);
}

uint32_t crc32c(std::string_view bytes) {
  return crc_with(kCastagnoli, bytes);
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8;
}

std::string valid_utf8(const std::string& text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

void Message::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

void Message::tag(int field, int wire_type) {
  varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}

Message& Message::number(int field, int64_t value) {
  tag(field, wire_type::kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

Message& Message::real(int field, double value) {
  tag(field, wire_type::kEightBytes);
  append_little_endian(bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

Message& Message::short_real(int field, float value) {
  tag(field, wire_type::kFourBytes);
  append_little_endian(bytes_, std::bit_cast<uint32_t>(value));
  return *this;
}

Message& Message::text(int field, std::string_view value) {
  tag(field, wire_type::kLength);
  varint(value.size());
  bytes_ += value;
  return *this;
}

Message& Message::reals(int field, const std::vector<double>& values) {
  tag(field, wire_type::kLength);
  varint(values.size() * sizeof(double));
  for (const double value : values) append_little_endian(bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

}  // namespace octavo::monitor

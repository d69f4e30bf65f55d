#include "foreign_logs/protobuf.h"

#include <bit>

#include "monitor/wire.h"

namespace octavo::foreign_logs {

namespace wire = monitor::wire_type;

uint64_t little_endian(std::string_view bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

bool MessageReader::fail_here() {
  damaged_ = true;
  rest_ = {};
  return false;
}

bool MessageReader::take_varint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return fail_here();
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return fail_here();
}

bool MessageReader::take_bytes(uint64_t count) {
  if (count > rest_.size()) return fail_here();
  bytes_ = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return true;
}

bool MessageReader::next() {
  number_ = 0;
  bytes_ = {};
  if (rest_.empty()) return false;
  uint64_t tag = 0;
  if (!take_varint(tag)) return false;
  constexpr uint64_t kMostField = (uint64_t{1} << 29) - 1;
  if (tag >> 3 == 0 || tag >> 3 > kMostField) return fail_here();
  field_ = static_cast<int>(tag >> 3);
  type_ = static_cast<int>(tag & 7);
  if (type_ == wire::kVarint) return take_varint(number_);
  if (type_ == wire::kEightBytes) return take_bytes(8);
  if (type_ == wire::kFourBytes) return take_bytes(4);
  if (type_ != wire::kLength) return fail_here();
  uint64_t length = 0;
  return take_varint(length) && take_bytes(length);
}

std::optional<double> MessageReader::real() const {
  if (type_ != wire::kEightBytes) return std::nullopt;
  return std::bit_cast<double>(little_endian(bytes_, 8));
}

std::optional<double> MessageReader::short_real() const {
  if (type_ != wire::kFourBytes) return std::nullopt;
  return std::bit_cast<float>(static_cast<uint32_t>(little_endian(bytes_, 4)));
}

}  // namespace octavo::foreign_logs

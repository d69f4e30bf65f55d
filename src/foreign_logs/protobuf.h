#pragma once
// The fields of a protobuf message, one after the other, of untrusted bytes; monitor/wire.h writes
// them.

#include <cstdint>
#include <optional>
#include <string_view>

namespace octavo::foreign_logs {

class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  // To the next field. False: the message has ended, or is_damaged().
  bool next();
  bool is_damaged() const { return damaged_; }

  int field() const { return field_; }
  // The field's value where it is of that kind; otherwise 0 or none.
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }
  std::optional<double> real() const;        // eight bytes
  std::optional<double> short_real() const;  // four bytes

 private:
  bool take_varint(uint64_t& value);
  bool take_bytes(uint64_t count);
  bool fail_here();

  std::string_view rest_, bytes_;
  int field_ = 0, type_ = 0;
  uint64_t number_ = 0;
  bool damaged_ = false;
};

// Little-endian; the text has at least as many bytes.
uint64_t little_endian(std::string_view bytes, size_t count);

}  // namespace octavo::foreign_logs

#include "monitor/wire.h"

#include <gtest/gtest.h>

#include "monitor/wandb.h"

namespace octavo::monitor {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(c));
    out += pair;
  }
  return out;
}

// The check values of the catalogue of CRC algorithms, and RFC 3720's for 32 zeros.
TEST(Wire, ChecksumsAreTheKnownOnes) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32(""), 0u);
  // As TensorFlow's crc32c::Mask: rotate right by 15 bits, add 0xa282ead8.
  const uint32_t plain = 0xE3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((plain >> 15) | (plain << 17)) + 0xA282EAD8u);
}

// The examples of protobuf's encoding page, and the widest numbers.
TEST(Wire, ProtobufBytes) {
  EXPECT_EQ(hex(Message().number(1, 150).bytes()), "089601");
  EXPECT_EQ(hex(Message().text(2, "testing").bytes()), "120774657374696e67");
  EXPECT_EQ(hex(Message().message(3, Message().number(1, 150)).bytes()), "1a03089601");
  EXPECT_EQ(hex(Message().number(1, -1).bytes()), "08ffffffffffffffffff01");
  EXPECT_EQ(hex(Message().number(1, 0).bytes()), "0800");
  EXPECT_EQ(hex(Message().number(16, 1).bytes()), "800101");
  EXPECT_EQ(hex(Message().real(1, 1.0).bytes()), "09000000000000f03f");
  EXPECT_EQ(hex(Message().short_real(2, 1.0f).bytes()), "150000803f");
  EXPECT_EQ(hex(Message().reals(6, {1.0, -2.0}).bytes()), "3210000000000000f03f00000000000000c0");
}

TEST(Wire, HalfACharacterIsReplaced) {
  EXPECT_EQ(valid_utf8("caf\xC3\xA9 \n"), "caf\xC3\xA9 \n");
  EXPECT_EQ(valid_utf8("caf\xC3"), "caf\xEF\xBF\xBD");
}

// What reads W&B's file, piece by piece; "" for the whole when a rule of the format is broken.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  size_t at = 7;
  std::string open;
  bool inside = false;
  while (at < file.size()) {
    const size_t room = 32768 - at % 32768;
    if (room < 7) {
      if (file.substr(at, room) != std::string(room, '\0')) return {};
      at += room;
      continue;
    }
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(file[at + i]); };
    const uint32_t checksum = byte(0) | byte(1) << 8 | byte(2) << 16 | uint32_t{byte(3)} << 24;
    const size_t size = byte(4) | byte(5) << 8;
    const int kind = byte(6);
    if (size + 7 > room || crc32(std::string_view(file).substr(at + 6, size + 1)) != checksum)
      return {};
    if ((kind == 1 || kind == 2) == inside) return {};
    inside = kind == 2 || kind == 3;
    open += file.substr(at + 7, size);
    at += 7 + size;
    if (kind == 1 || kind == 4) {
      records.push_back(open);
      open.clear();
    }
  }
  return records;
}

TEST(Wire, WandbLogCutsRecordsAtBlocks) {
  const std::string first(100, 'a');
  EXPECT_EQ(hex(wandb_log_bytes(first, 0).substr(0, 7)), "3a572642e1be00");
  // Ends of records before, at and after every place around the end of a block.
  for (const size_t size : {32768u - 14, 32768u - 15, 32768u - 20, 32768u - 21, 32768u - 22,
                            32768u - 27, 32768u - 28, 70'000u, 200'000u}) {
    std::string file;
    std::vector<std::string> wanted = {std::string(size, 'x'), "yes", std::string(40'000, 'z')};
    for (const std::string& record : wanted) file += wandb_log_bytes(record, file.size());
    EXPECT_TRUE(records_of(file) == wanted) << size;
  }
}

}  // namespace
}  // namespace octavo::monitor

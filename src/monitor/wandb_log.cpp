// The frame of W&B's file: LevelDB's log format, with CRC-32 instead of masked CRC-32C.

#include <algorithm>

#include "monitor/log_format.h"
#include "monitor/wandb.h"
#include "monitor/wire.h"

namespace octavo::monitor {
namespace {

using namespace wandb_frame;

void add_piece(std::string& out, Piece kind, std::string_view data) {
  const std::string checked = std::string(1, kind) + std::string(data);
  append_little_endian(out, crc32(checked));
  append_little_endian(out, static_cast<uint16_t>(data.size()));
  out += checked;
}

}  // namespace

std::string wandb_log_bytes(std::string_view record, uint64_t offset) {
  std::string out;
  if (offset == 0) out = kFileHeader;
  bool first = true;
  for (;;) {
    uint64_t room = kBlock - (offset + out.size()) % kBlock;
    if (room < kPieceHeader) {
      out.append(room, '\0');
      room = kBlock;
    }
    const size_t size = std::min<uint64_t>(record.size(), room - kPieceHeader);
    const bool last = size == record.size();
    add_piece(out, first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle),
              record.substr(0, size));
    if (last) return out;
    record.remove_prefix(size);
    first = false;
  }
}

}  // namespace octavo::monitor

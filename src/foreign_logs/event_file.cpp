// TensorBoard's event files, of torch's SummaryWriter, TensorFlow, tensorboardX and octavo.

#include <bit>

#include "base/error.h"
#include "foreign_logs/protobuf.h"
#include "foreign_logs/readers.h"
#include "monitor/log_format.h"
#include "monitor/wire.h"

namespace octavo::foreign_logs {
namespace {

namespace event = monitor::event;
namespace value = monitor::value;
namespace tensor = monitor::tensor;

constexpr size_t kFrameHead = 12, kFrameTail = 4;  // length and its checksum; checksum of the bytes
constexpr uint64_t kLongestEvent = uint64_t{256} << 20;

bool is_frame_head(std::string_view bytes) {
  return bytes.size() >= kFrameHead &&
         little_endian(bytes.substr(8), 4) == monitor::masked_crc32c(bytes.substr(0, 8)) &&
         little_endian(bytes, 8) <= kLongestEvent;
}

std::optional<double> first_real(std::string_view packed, size_t size) {
  if (packed.size() < size) return std::nullopt;
  if (size == 8) return std::bit_cast<double>(little_endian(packed, 8));
  return std::bit_cast<float>(static_cast<uint32_t>(little_endian(packed, 4)));
}

// A tensor of one number, as TensorFlow 2 keeps a scalar.
std::optional<double> tensor_scalar(std::string_view bytes) {
  MessageReader reader(bytes);
  uint64_t type = 0;
  std::string_view content;
  std::optional<double> number;
  while (reader.next()) {
    if (reader.field() == tensor::kType) type = reader.number();
    if (reader.field() == tensor::kContent) content = reader.bytes();
    if (reader.field() == tensor::kFloats)
      number = reader.short_real() ? reader.short_real() : first_real(reader.bytes(), 4);
    if (reader.field() == tensor::kDoubles)
      number = reader.real() ? reader.real() : first_real(reader.bytes(), 8);
  }
  if (type != tensor::kFloatType && type != tensor::kDoubleType) return std::nullopt;
  const size_t size = type == tensor::kDoubleType ? 8 : 4;
  if (!number && content.size() == size) number = first_real(content, size);
  return number;
}

struct Scalar {
  std::string_view tag;
  std::optional<double> number;
};

Scalar read_scalar(std::string_view bytes) {
  Scalar scalar;
  MessageReader reader(bytes);
  while (reader.next()) {
    if (reader.field() == value::kTag) scalar.tag = reader.bytes();
    if (reader.field() == value::kSimpleValue) scalar.number = reader.short_real();
    if (reader.field() == value::kTensor) scalar.number = tensor_scalar(reader.bytes());
  }
  return scalar;
}

void take_event(std::string_view bytes, Metrics& metrics) {
  MessageReader reader(bytes);
  int64_t step = 0;
  double wall_time = 0;
  std::string_view summary;
  bool starts = false;
  while (reader.next()) {
    if (reader.field() == event::kWallTime) wall_time = reader.real().value_or(0);
    if (reader.field() == event::kStep) step = std::bit_cast<int64_t>(reader.number());
    if (reader.field() == event::kSummary) summary = reader.bytes();
    if (reader.field() == event::kSessionLog)
      for (MessageReader log(reader.bytes()); log.next();)
        starts |=
            log.field() == monitor::session::kStatus && log.number() == monitor::session::kStart;
  }
  if (reader.is_damaged()) return metrics.count_bad_line();
  if (starts) metrics.forget_from(step);
  bool has_loss = false;
  MessageReader values(summary);
  while (values.next()) {
    if (values.field() != monitor::kSummaryValue) continue;
    const Scalar scalar = read_scalar(values.bytes());
    if (!scalar.number || scalar.tag.empty()) continue;
    if (!metrics.add(scalar.tag, step, *scalar.number)) metrics.count_bad_line();
    has_loss |= metrics.is_loss(scalar.tag);
  }
  if (values.is_damaged()) metrics.count_bad_line();
  if (has_loss && wall_time > 0) metrics.add(kWallTime, step, wall_time);
}

}  // namespace

bool is_event_file(std::string_view head) {
  return is_frame_head(head);
}

void read_event_file(std::string_view bytes, const std::string& name, Metrics& metrics) {
  size_t at = 0;
  while (bytes.size() - at >= kFrameHead) {
    const std::string_view rest = bytes.substr(at);
    const uint64_t length = little_endian(rest, 8);
    if (!is_frame_head(rest))
      return metrics.remark(str(name, ": damaged at byte ", at, "; what follows was left out"));
    if (rest.size() - kFrameHead < kFrameTail || length > rest.size() - kFrameHead - kFrameTail)
      break;
    const std::string_view body = rest.substr(kFrameHead, length);
    if (little_endian(rest.substr(kFrameHead + length), 4) != monitor::masked_crc32c(body))
      return metrics.remark(str(name, ": damaged at byte ", at, "; what follows was left out"));
    take_event(body, metrics);
    at += kFrameHead + length + kFrameTail;
  }
  if (at != bytes.size())
    metrics.remark(str(name, ": ends in the middle of an event, as when a run still writes it"));
}

}  // namespace octavo::foreign_logs

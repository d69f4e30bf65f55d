#include "rendezvous/protocol.h"

#include <cstring>

namespace octavo::rendezvous {
namespace {

template <typename T>
void put_number(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out += static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xff);
}

void put_strings(std::string& out, const std::vector<std::string>& strings) {
  put_number<uint32_t>(out, static_cast<uint32_t>(strings.size()));
  for (const std::string& text : strings) {
    put_number<uint32_t>(out, static_cast<uint32_t>(text.size()));
    out += text;
  }
}

std::string framed(const std::string& body) {
  std::string frame;
  frame.reserve(body.size() + 4);
  put_number<uint32_t>(frame, static_cast<uint32_t>(body.size()));
  return frame += body;
}

// Reads from the front; after the first thing that is not there, everything fails.
class BodyReader {
 public:
  explicit BodyReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    if (!take(sizeof(T))) return 0;
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<uint64_t>(static_cast<unsigned char>(taken_[i])) << (8 * i);
    return static_cast<T>(value);
  }

  std::vector<std::string> strings(size_t max_count, size_t max_bytes) {
    std::vector<std::string> all;
    const auto count = number<uint32_t>();
    if (count > max_count) good_ = false;
    for (uint32_t i = 0; good_ && i < count; ++i) {
      const auto size = number<uint32_t>();
      if (size > max_bytes) good_ = false;
      if (good_ && take(size)) all.emplace_back(taken_);
    }
    return all;
  }

  bool good() const { return good_; }
  bool at_end() const { return good_ && bytes_.empty(); }

 private:
  bool take(size_t size) {
    if (size > bytes_.size()) good_ = false;
    if (!good_) return false;
    taken_ = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

  std::string_view bytes_, taken_;
  bool good_ = true;
};

struct Shape {
  size_t keys, values;  // kMany: any number
};
constexpr size_t kMany = SIZE_MAX;

std::optional<Shape> shape_of(Op op) {
  switch (op) {
    case Op::kSet:
    case Op::kAppend:
      return Shape{1, 1};
    case Op::kGet:
    case Op::kAdd:
    case Op::kDelete:
    case Op::kMissing:
    case Op::kDeletePrefix:
      return Shape{1, 0};
    case Op::kCompareSet:
      return Shape{1, 2};
    case Op::kCheck:
    case Op::kWait:
    case Op::kMultiGet:
    case Op::kMultiTryGet:
      return Shape{kMany, 0};
    case Op::kMultiSet:
      return Shape{kMany, kMany};
    case Op::kSize:
      return Shape{0, 0};
  }
  return std::nullopt;
}

bool has_shape(const Request& request) {
  const std::optional<Shape> shape = shape_of(request.op);
  if (!shape) return false;
  if (request.op == Op::kMultiSet) return request.keys.size() == request.values.size();
  if (request.op == Op::kMissing && (request.number < 0 || request.number > kMaxMissingRange))
    return false;
  return (shape->keys == kMany || request.keys.size() == shape->keys) &&
         request.values.size() == shape->values;
}

template <typename Message>
std::optional<Message> refuse(std::string* why, const char* reason) {
  *why = reason;
  return std::nullopt;
}

}  // namespace

std::string encode_hello(const Hello& hello) {
  std::string out(kMagic);
  put_number<uint16_t>(out, hello.version);
  return out += hello.nonce;
}

std::optional<Hello> parse_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || !bytes.starts_with(kMagic)) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  const auto version = BodyReader(bytes).number<uint16_t>();
  return Hello{version, std::string(bytes.substr(2))};
}

std::string encode(const Request& request) {
  std::string body;
  put_number<uint8_t>(body, static_cast<uint8_t>(request.op));
  put_number<uint32_t>(body, request.wait_ms);
  put_number<int64_t>(body, request.number);
  put_strings(body, request.keys);
  put_strings(body, request.values);
  return framed(body);
}

std::string encode(const Reply& reply) {
  std::string body;
  put_number<uint8_t>(body, static_cast<uint8_t>(reply.status));
  put_number<int64_t>(body, reply.number);
  put_strings(body, reply.values);
  return framed(body);
}

std::optional<uint32_t> parse_frame_length(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  return BodyReader(bytes).number<uint32_t>();
}

std::optional<Request> parse_request(std::string_view body, std::string* why) {
  if (body.size() > kMaxFrameBytes) return refuse<Request>(why, "the frame is too large");
  BodyReader reader(body);
  Request request;
  request.op = static_cast<Op>(reader.number<uint8_t>());
  request.wait_ms = reader.number<uint32_t>();
  request.number = reader.number<int64_t>();
  request.keys = reader.strings(kMaxKeysPerRequest, kMaxKeyBytes);
  if (!reader.good()) return refuse<Request>(why, "its keys are cut off, too many or too long");
  request.values = reader.strings(kMaxKeysPerRequest, kMaxValueBytes);
  if (!reader.good()) return refuse<Request>(why, "its values are cut off, too many or too long");
  if (!reader.at_end()) return refuse<Request>(why, "bytes follow its end");
  if (!has_shape(request))
    return refuse<Request>(why, "no such operation, or not the keys and values it takes");
  return request;
}

std::optional<Reply> parse_reply(std::string_view body, std::string* why) {
  if (body.size() > kMaxFrameBytes) return refuse<Reply>(why, "the frame is too large");
  BodyReader reader(body);
  Reply reply;
  const auto status = reader.number<uint8_t>();
  reply.status = static_cast<Status>(status);
  reply.number = reader.number<int64_t>();
  reply.values = reader.strings(kMaxKeysPerRequest, kMaxFrameBytes);
  if (!reader.at_end())
    return refuse<Reply>(why, "the reply is cut off or continues after its end");
  if (status > static_cast<uint8_t>(Status::kRefused))
    return refuse<Reply>(why, "the reply has no known status");
  return reply;
}

}  // namespace octavo::rendezvous

#pragma once
// The bytes of the rendezvous, as pure functions: nothing here touches a socket, so that a fuzzer
// can drive all of it.
//
// A connection begins with a handshake of fixed sizes:
//   client: hello  = magic (8), version (2), nonce (32)
//   server: hello  = magic (8), version (2), nonce (32)     nothing goes out before a right hello
//   client: proof  = HMAC-SHA256(secret, "client", both hellos)
//   server: answer = 1 (accepted), 2 (full) or 0, then its own proof, HMAC(secret, "server", both)
// then frames: length (4), body. Requests and replies have one form each, whatever the operation.
// Numbers are little-endian. The connection is not encrypted: the secret keeps others out of the
// store, it hides nothing from somebody who reads the wire.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::rendezvous {

inline constexpr std::string_view kMagic = "OCTAVORV";
inline constexpr uint16_t kVersion = 1;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kHelloBytes = 8 + 2 + kNonceBytes;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kAnswerBytes = 1 + kProofBytes;
inline constexpr char kAnswerAccepted = 1, kAnswerFull = 2;

// What one side accepts of the other.
inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr size_t kMaxValueBytes = size_t{8} << 20;
inline constexpr size_t kMaxFrameBytes = size_t{16} << 20;
inline constexpr size_t kMaxKeysPerRequest = 65536;
inline constexpr int64_t kMaxMissingRange = 131072;
inline constexpr size_t kMaxMissingListed = 16;

enum class Op : uint8_t {
  kSet = 1,
  kGet,  // waits
  kAdd,  // number: what to add
  kCheck,
  kWait,        // waits
  kCompareSet,  // values: expected, desired
  kDelete,
  kSize,
  kAppend,
  kMultiGet,  // waits
  kMultiSet,
  kMissing,       // key: prefix, number: how many
  kDeletePrefix,  // key: prefix
  kMultiTryGet,   // values: "" for a key that is not there
};

struct Request {
  Op op = Op::kSize;
  uint32_t wait_ms = 0;  // how long the server may keep an operation that waits
  int64_t number = 0;
  std::vector<std::string> keys;
  std::vector<std::string> values;
};

enum class Status : uint8_t { kOk = 0, kTimedOut = 1, kRefused = 2 /* values[0]: why */ };

struct Reply {
  Status status = Status::kOk;
  int64_t number = 0;
  std::vector<std::string> values;
};

struct Hello {
  uint16_t version = kVersion;
  std::string nonce;  // kNonceBytes
};

std::string encode_hello(const Hello& hello);
// Nothing when the magic is not ours; `bytes` has kHelloBytes.
std::optional<Hello> parse_hello(std::string_view bytes);

// With the frame's length in front.
std::string encode(const Request& request);
std::string encode(const Reply& reply);

// The length of the body that a frame announces, once its four bytes are there.
std::optional<uint32_t> parse_frame_length(std::string_view bytes);

// A body must be exactly one message; otherwise nothing is returned and *why says what was wrong.
std::optional<Request> parse_request(std::string_view body, std::string* why);
std::optional<Reply> parse_reply(std::string_view body, std::string* why);

}  // namespace octavo::rendezvous

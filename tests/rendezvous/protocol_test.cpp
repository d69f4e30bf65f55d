#include "rendezvous/protocol.h"

#include <gtest/gtest.h>

#include <random>

#include "rendezvous/auth.h"
#include "rendezvous/table.h"

namespace octavo::rendezvous {
namespace {

std::string body_of(const std::string& frame) {
  return frame.substr(4);
}

Request sample() {
  return {Op::kMultiSet, 7, -9, {"a", "bb"}, {"", std::string(300, 'x')}};
}

TEST(Protocol, RequestsComeBack) {
  const std::string frame = encode(sample());
  EXPECT_EQ(parse_frame_length(frame), frame.size() - 4);
  std::string why;
  const auto request = parse_request(body_of(frame), &why);
  ASSERT_TRUE(request) << why;
  EXPECT_EQ(request->op, Op::kMultiSet);
  EXPECT_EQ(request->wait_ms, 7U);
  EXPECT_EQ(request->number, -9);
  EXPECT_EQ(request->keys, sample().keys);
  EXPECT_EQ(request->values, sample().values);
}

TEST(Protocol, RepliesComeBack) {
  std::string why;
  const auto reply = parse_reply(body_of(encode(Reply{Status::kTimedOut, INT64_MIN, {"v"}})), &why);
  ASSERT_TRUE(reply) << why;
  EXPECT_EQ(reply->status, Status::kTimedOut);
  EXPECT_EQ(reply->number, INT64_MIN);
  EXPECT_EQ(reply->values, std::vector<std::string>{"v"});
}

TEST(Protocol, EveryCutAndEveryExtraByteIsRefused) {
  const std::string body = body_of(encode(sample()));
  std::string why;
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(parse_request(body.substr(0, size), &why)) << size;
  EXPECT_FALSE(parse_request(body + "x", &why));
  const std::string reply = body_of(encode(Reply{Status::kOk, 1, {"value"}}));
  for (size_t size = 0; size < reply.size(); ++size)
    EXPECT_FALSE(parse_reply(reply.substr(0, size), &why)) << size;
}

TEST(Protocol, CountsThatPromiseMoreThanThereIs) {
  std::string why;
  std::string body = body_of(encode(Request{Op::kCheck, 0, 0, {}, {}}));
  body.replace(13, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(parse_request(body, &why));
  EXPECT_NE(why.find("too many"), std::string::npos);
}

TEST(Protocol, AnOperationTakesItsOwnKeysAndValues) {
  std::string why;
  const auto refused = [&](const Request& request) {
    return !parse_request(body_of(encode(request)), &why);
  };
  EXPECT_TRUE(refused({Op::kSet, 0, 0, {"k"}, {}}));
  EXPECT_TRUE(refused({Op::kSet, 0, 0, {}, {"v"}}));
  EXPECT_TRUE(refused({Op::kMultiSet, 0, 0, {"k"}, {}}));
  EXPECT_TRUE(refused({Op::kCompareSet, 0, 0, {"k"}, {"v"}}));
  EXPECT_TRUE(refused({Op::kMissing, 0, -1, {"k"}, {}}));
  EXPECT_TRUE(refused({Op::kMissing, 0, kMaxMissingRange + 1, {"k"}, {}}));
  EXPECT_TRUE(refused({static_cast<Op>(0), 0, 0, {}, {}}));
  EXPECT_TRUE(refused({static_cast<Op>(200), 0, 0, {}, {}}));
  EXPECT_FALSE(refused({Op::kMissing, 0, kMaxMissingRange, {"k"}, {}}));
}

// What a fuzzer does for longer: bytes that are nearly a request, through parser and table.
TEST(Protocol, NearlyRequestsHarmNothing) {
  std::mt19937 random(7);
  const std::string good = body_of(encode(sample()));
  Table table(50, 100'000);
  int understood = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string body = good;
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips)
      body[random() % 30] = static_cast<char>(random() % (flips == 0 ? 14 : 256));
    std::string why;
    const auto request = parse_request(body, &why);
    if (!request) continue;
    ++understood;
    if (!Table::waits(request->op) || table.first_missing(*request, 0) == Table::kNone)
      table.answer(*request);
    ASSERT_LE(table.keys(), 50U);
    ASSERT_LE(table.bytes(), 100'000U);
  }
  EXPECT_GT(understood, 100);
}

TEST(Hello, KnowsItsMagic) {
  const std::string nonce = random_nonce();
  EXPECT_NE(nonce, random_nonce());
  const std::string bytes = encode_hello({3, nonce});
  ASSERT_EQ(bytes.size(), kHelloBytes);
  ASSERT_TRUE(parse_hello(bytes));
  EXPECT_EQ(parse_hello(bytes)->version, 3);
  EXPECT_EQ(parse_hello(bytes)->nonce, nonce);
  EXPECT_FALSE(parse_hello("octavorv" + bytes.substr(8)));
  EXPECT_FALSE(parse_hello(bytes.substr(1)));
}

// Against another program's numbers.
TEST(Proof, IsHmacSha256) {
  const auto hex = [](const std::string& bytes) {
    std::string text;
    for (const unsigned char byte : bytes) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  };
  // From `printf 'client\0ab' | openssl dgst -sha256 -hmac Jefe`.
  EXPECT_EQ(hex(proof("Jefe", "client", "a", "b")),
            "9b2207cf0d8ae235bdc2c513fd1b0e02b4a93000f5d8823b57d450efb0217b7d");
  EXPECT_NE(proof("Jefe", "client", "a", "b"), proof("Jefe", "server", "a", "b"));
  EXPECT_NE(proof("Jefe", "client", "a", "b"), proof("Jeff", "client", "a", "b"));
  EXPECT_TRUE(same_bytes("abc", "abc"));
  EXPECT_FALSE(same_bytes("abc", "abd"));
  EXPECT_FALSE(same_bytes("abc", "ab"));
}

}  // namespace
}  // namespace octavo::rendezvous

// Those who should not get in, and those who got in and ask for too much.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <random>

#include "base/file.h"
#include "expect_failure.h"
#include "fixtures.h"
#include "rendezvous/auth.h"
#include "scratch.h"

namespace octavo::rendezvous {
namespace {

TEST(Addresses, WildcardsAreRefused) {
  for (const char* address : {"0.0.0.0", "::", "0", "::ffff:0.0.0.0", "000.0.0.0"})
    expect_failure(ExitCode::kUsage, "every interface", [&] { Server(address, 0, kSecret); });
  expect_failure(ExitCode::kEnvironment, "cannot listen", [] { Server("", 0, kSecret); });
  // An address for documentation: no machine has it.
  expect_failure(ExitCode::kEnvironment, "cannot listen", [] { Server("192.0.2.1", 0, kSecret); });
  // Which a port that is taken is not: that one may be free again soon.
  for (const char* address : {"192.0.2.1", "fe80::1%nosuch"})
    EXPECT_THROW(Server(address, 0, kSecret), WrongAddress);
  expect_failure(ExitCode::kUsage, "no such port", [] { Server("127.0.0.1", 70000, kSecret); });
}

TEST(Addresses, BoundToTheStatedOneOnly) {
  const Server server("127.0.0.2", 0, "");
  EXPECT_EQ(server.address(), "127.0.0.2");
  EXPECT_THROW(Client("127.0.0.1", server.port(), "", milliseconds(50)), Unreachable);
  Client("127.0.0.2", server.port(), "", seconds(5)).set("a", "b");
  expect_failure(ExitCode::kEnvironment, "in use", [&] { Server("127.0.0.2", server.port(), ""); });
  try {
    Server("127.0.0.2", server.port(), "");
  } catch (const Error& error) {
    EXPECT_EQ(dynamic_cast<const WrongAddress*>(&error), nullptr);
  }
}

TEST(Secrets, NeededUnlessLoopback) {
  for (const char* address : {"192.0.2.1", "2001:db8::1"}) {
    expect_failure(ExitCode::kUsage, "OCTAVO_RENDEZVOUS_SECRET", [&] { Server(address, 0, ""); });
    expect_failure(ExitCode::kUsage, "OCTAVO_RENDEZVOUS_SECRET",
                   [&] { Client(address, 1, "", seconds(1)); });
  }
  expect_failure(ExitCode::kUsage, "16 or more", [] { Server("127.0.0.1", 0, "short"); });
}

TEST(Secrets, AWrongOneIsToldAtOnce) {
  const Server server("127.0.0.1", 0, kSecret);
  const auto start = Clock::now();
  expect_failure(ExitCode::kUsage, "secret is not ours",
                 [&] { client_of(server, "another secret of enough bytes"); });
  expect_failure(ExitCode::kUsage, "secret is not ours", [&] { client_of(server, ""); });
  EXPECT_LT(Clock::now() - start, seconds(3));
  EXPECT_TRUE(becomes_true([&] { return server.counts().wrong_secret == 2; }));
  EXPECT_EQ(server.counts().let_in, 0);
  const Server open("127.0.0.1", 0, "");
  expect_failure(ExitCode::kUsage, "secret is not ours", [&] { client_of(open, kSecret); });
}

// A server that lets everybody in does not know the secret: a client must not talk to it.
TEST(Secrets, TheServerProvesItselfToo) {
  std::string why;
  const Fd listener = listen_on(resolve_address("127.0.0.1", 0, &why).at(0));
  ASSERT_TRUE(listener.open());
  std::thread impostor([&] {
    Fd fd;
    while (!fd.open()) fd = Fd(::accept(listener.get(), nullptr, nullptr));
    hear(fd, kHelloBytes);
    say(fd, encode_hello({kVersion, random_nonce()}));
    hear(fd, kProofBytes);
    say(fd, '\1' + std::string(kProofBytes, 'x'));
    hear(fd, 1);
  });
  expect_failure(ExitCode::kUsage, "without knowing the secret",
                 [&] { Client("127.0.0.1", port_of(listener.get()), kSecret, seconds(5)); });
  impostor.join();
}

TEST(Secrets, FromEnvironmentOrFile) {
  const Scratch scratch;
  ::unsetenv("OCTAVO_RENDEZVOUS_SECRET");
  ::unsetenv("OCTAVO_RENDEZVOUS_SECRET_FILE");
  EXPECT_EQ(secret_from_environment(), "");
  const std::string path = (scratch / "secret").string();
  { std::ofstream(path) << kSecret << "\n"; }
  ::setenv("OCTAVO_RENDEZVOUS_SECRET_FILE", path.c_str(), 1);
  fs::permissions(path, fs::perms::owner_read);
  EXPECT_EQ(secret_from_environment(), kSecret);
  fs::permissions(path, fs::perms::owner_read | fs::perms::others_read);
  expect_failure(ExitCode::kUsage, "chmod 600", [] { secret_from_environment(); });
  ::setenv("OCTAVO_RENDEZVOUS_SECRET_FILE", scratch.path().c_str(), 1);
  expect_failure(ExitCode::kEnvironment, "regular file", [] { secret_from_environment(); });
  ::setenv("OCTAVO_RENDEZVOUS_SECRET_FILE", "/nowhere/secret", 1);
  expect_failure(ExitCode::kEnvironment, "/nowhere/secret", [] { secret_from_environment(); });
  ::setenv("OCTAVO_RENDEZVOUS_SECRET", "from the environment", 1);
  EXPECT_EQ(secret_from_environment(), "from the environment");
  ::unsetenv("OCTAVO_RENDEZVOUS_SECRET");
  ::unsetenv("OCTAVO_RENDEZVOUS_SECRET_FILE");
}

TEST(Unauthenticated, GarbageGetsNoAnswer) {
  const Server server("127.0.0.1", 0, kSecret);
  const Fd fd = knock(server);
  say(fd, "GET / HTTP/1.1\r\nHost: somewhere.example\r\nUser-Agent: x\r\n\r\n");
  EXPECT_EQ(hear(fd, 1), "");
  EXPECT_TRUE(becomes_true([&] { return server.counts().garbage == 1; }));
}

TEST(Unauthenticated, ARequestInsteadOfAProofGetsNothing) {
  const Server server("127.0.0.1", 0, kSecret);
  auto client = client_of(server);
  client->set("key", "value");
  const Fd fd = knock(server);
  say(fd, encode_hello({kVersion, std::string(kNonceBytes, 'n')}));
  EXPECT_EQ(hear(fd, kHelloBytes).size(), kHelloBytes);
  say(fd, encode(Request{Op::kSet, 0, 0, {"key"}, {std::string(kProofBytes, 'x')}}));
  EXPECT_EQ(hear(fd, 1000), std::string(kAnswerBytes, '\0'));
  EXPECT_EQ(client->get("key", milliseconds(0)), "value");
}

// A proof that was right once, sent again to another connection.
TEST(Unauthenticated, AReplayedProofIsWrong) {
  const Server server("127.0.0.1", 0, kSecret);
  const std::string hello = encode_hello({kVersion, std::string(kNonceBytes, 'n')});
  const Fd first = knock(server);
  say(first, hello);
  const std::string proven = proof(kSecret, "client", hello, hear(first, kHelloBytes));
  say(first, proven);
  EXPECT_EQ(hear(first, 1), "\1");
  const Fd second = knock(server);
  say(second, hello);
  hear(second, kHelloBytes);
  say(second, proven);
  EXPECT_EQ(hear(second, 1), std::string(1, '\0'));
}

TEST(Unauthenticated, SlowOnesAreDropped) {
  Limits limits;
  limits.handshake = milliseconds(300);
  const Server server("127.0.0.1", 0, kSecret, limits);
  const Fd silent = knock(server), half = knock(server), loris = knock(server);
  say(half, encode_hello({kVersion, std::string(kNonceBytes, 'n')}));
  std::thread dripping([&] {
    const std::string hello = encode_hello({kVersion, std::string(kNonceBytes, 'n')});
    for (size_t i = 0; i < 20; ++i) {
      if (!say(loris, hello.substr(i, 1))) break;
      std::this_thread::sleep_for(milliseconds(30));
    }
  });
  EXPECT_TRUE(becomes_true([&] { return server.counts().too_slow == 3; }));
  EXPECT_EQ(hear(silent, 1), "");
  EXPECT_EQ(hear(half, 1000).size(), kHelloBytes);
  dripping.join();
  client_of(server)->set("a", "b");
}

TEST(Unauthenticated, TheOldestMakesRoom) {
  Limits limits;
  limits.unauthenticated = 8;
  limits.handshake = seconds(60);
  const Server server("127.0.0.1", 0, kSecret, limits);
  std::vector<Fd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(knock(server));
  auto client = client_of(server);
  client->set("a", "b");
  EXPECT_GE(server.counts().too_slow, 12);
  EXPECT_EQ(hear(silent[0], 1), "");  // closed
}

// Garbage, silence, hellos without proof, wrong proofs and early leavers, while a client works.
TEST(Unauthenticated, TwoThousandDoNotDisturbAClient) {
  Limits limits;
  limits.unauthenticated = 64;
  limits.handshake = milliseconds(200);
  const Server server("127.0.0.1", 0, kSecret, limits);
  auto client = client_of(server);
  std::atomic<bool> done{false};
  std::atomic<int64_t> worked = 0;
  std::thread bad([&] {
    const auto patience = Clock::now() + seconds(20);
    std::mt19937 random(3);
    std::vector<Fd> held;
    for (int i = 0; i < 2000; ++i) {
      Fd fd = knock(server);
      if (i % 5 == 1) say(fd, std::string(1 + random() % 200, static_cast<char>(random())));
      if (i % 5 == 2) say(fd, encode_hello({kVersion, std::string(kNonceBytes, 'n')}));
      if (i % 5 == 3) {
        say(fd, encode_hello({kVersion, std::string(kNonceBytes, 'n')}));
        say(fd, std::string(kProofBytes, 'p'));
      }
      if (i % 5 != 4) held.push_back(std::move(fd));
      if (held.size() > 200) held.erase(held.begin(), held.begin() + 100);
      // A busy machine may leave the client no time at all among them.
      while (worked < i / 30 && Clock::now() < patience) std::this_thread::yield();
    }
    done = true;
  });
  auto slowest = Clock::duration::zero();
  while (!done) {
    const auto start = Clock::now();
    EXPECT_EQ(client->add("n", 1), ++worked);
    slowest = std::max(slowest, Clock::now() - start);
  }
  bad.join();
  EXPECT_GT(worked, 50);
  EXPECT_LT(slowest, seconds(1));
  const auto all_gone = [&] {
    const Counts counts = server.counts();
    return counts.garbage + counts.wrong_secret + counts.too_slow + counts.left_early == 2000;
  };
  EXPECT_TRUE(becomes_true(all_gone));
  EXPECT_EQ(server.counts().let_in, 1);
  client_of(server)->set("a", "b");
}

// A server that may open few files, in a process of its own: clients cannot use them up.
TEST(Unauthenticated, CannotTakeAllDescriptors) {
  const int port = Server("127.0.0.1", 0, kSecret).port();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit few{40, 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const Server server("127.0.0.1", port, kSecret);
    std::this_thread::sleep_for(seconds(60));
    ::_exit(0);
  }
  Client first("127.0.0.1", port, kSecret, seconds(10));
  std::string why;
  const auto endpoints = resolve_address("127.0.0.1", port, &why);
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i)
    silent.push_back(connect_to(endpoints.at(0), Clock::now() + seconds(5), &why));
  first.set("a", "b");
  EXPECT_EQ(Client("127.0.0.1", port, kSecret, seconds(30)).get("a", seconds(1)), "b");
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

class Authenticated : public testing::Test {
 protected:
  // A connection that has proven the secret and says what it likes.
  static Fd enter(const Server& server) {
    Fd fd = knock(server);
    const std::string hello = encode_hello({kVersion, random_nonce()});
    say(fd, hello);
    say(fd, proof(kSecret, "client", hello, hear(fd, kHelloBytes)));
    EXPECT_EQ(hear(fd, kAnswerBytes).size(), kAnswerBytes);
    return fd;
  }
};

TEST_F(Authenticated, FramesBeyondTheLimitEndTheConnection) {
  const Server server("127.0.0.1", 0, kSecret);
  for (const std::string_view length : {std::string_view("\xff\xff\xff\xff"), {"\0\0\0\0", 4}}) {
    const Fd fd = enter(server);
    say(fd, length);
    EXPECT_EQ(hear(fd, 1), "");
  }
  EXPECT_EQ(server.counts().garbage, 2);
}

TEST_F(Authenticated, ANonsenseRequestIsRefusedAndTheNextOneServed) {
  const Server server("127.0.0.1", 0, kSecret);
  const Fd fd = enter(server);
  say(fd, std::string("\3\0\0\0abc", 7));
  EXPECT_GT(hear(fd, 20).size(), 4U);
  EXPECT_EQ(server.counts().refused, 1);
}

TEST_F(Authenticated, KeysAndBytesAreBounded) {
  Limits limits;
  limits.keys = 10;
  limits.bytes = 100'000;
  const Server server("127.0.0.1", 0, kSecret, limits);
  auto client = client_of(server);
  for (int i = 0; i < 10; ++i) client->set(str("k", i), "v");
  expect_failure(ExitCode::kEnvironment, "full: 10 keys", [&] { client->set("one more", ""); });
  client->set("k0", "another value");
  const std::string large(60'000, 'x');
  client->set("k1", large);
  expect_failure(ExitCode::kEnvironment, "full: 100000 bytes", [&] { client->set("k2", large); });
  client->set("k1", "");
  client->set("k2", large);
  EXPECT_LE(server.counts().bytes, 100'000);
}

TEST_F(Authenticated, MessagesOnTheirWayAreBounded) {
  Limits limits;
  limits.buffer_bytes = size_t{2} << 20;
  const Server server("127.0.0.1", 0, kSecret, limits);
  auto client = client_of(server);
  std::vector<Fd> greedy;
  const std::string half_a_frame =
      std::string("\0\0\x40\0", 4) + std::string(900'000, 'x');  // announces 4 MiB
  for (int i = 0; i < 4; ++i) {
    greedy.push_back(enter(server));
    say(greedy.back(), half_a_frame);
  }
  EXPECT_TRUE(becomes_true([&] { return server.counts().over_memory >= 1; }));
  client->set("a", "b");
  EXPECT_EQ(client->get("a", milliseconds(0)), "b");
}

// One that asks for a large value and does not read it holds up nobody.
TEST_F(Authenticated, ReadersThatDoNotReadHoldUpNobody) {
  const Server server("127.0.0.1", 0, kSecret);
  auto client = client_of(server);
  client->set("large", std::string(kMaxValueBytes, 'v'));
  std::vector<Fd> lazy;
  for (int i = 0; i < 4; ++i) {
    lazy.push_back(enter(server));
    say(lazy.back(), encode(Request{Op::kGet, 0, 0, {"large"}, {}}));
  }
  const auto start = Clock::now();
  for (int i = 0; i < 100; ++i) client->add("n", 1);
  EXPECT_LT(Clock::now() - start, seconds(3));
  EXPECT_EQ(hear(lazy[0], 100'000).size(), 100'000U);
}

TEST_F(Authenticated, ThoseWhoLeaveWhileTheyWaitAreForgotten) {
  const Server server("127.0.0.1", 0, kSecret);
  auto client = client_of(server);
  for (int i = 0; i < 10; ++i) {
    const Fd fd = enter(server);
    say(fd, encode(Request{Op::kWait, 60'000, 0, {"key"}, {}}));
  }
  EXPECT_TRUE(becomes_true([&] { return server.counts().connections == 1; }));
  client->set("key", "");
  EXPECT_EQ(client->get("key", milliseconds(0)), "");
}

TEST_F(Authenticated, ConnectionsAreBounded) {
  Limits limits;
  limits.connections = 3;
  const Server server("127.0.0.1", 0, kSecret, limits);
  std::vector<Fd> all;
  for (int i = 0; i < 3; ++i) all.push_back(enter(server));
  expect_failure(ExitCode::kEnvironment, "as many connections",
                 [&] { Client("127.0.0.1", server.port(), kSecret, milliseconds(100)); });
  EXPECT_GE(server.counts().turned_away, 1);
  all.pop_back();
  client_of(server)->set("a", "b");
}

}  // namespace
}  // namespace octavo::rendezvous

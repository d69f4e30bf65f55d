#include <atomic>
#include <numeric>

#include "expect_failure.h"
#include "fixtures.h"

namespace octavo::rendezvous {
namespace {

class Operations : public testing::Test {
 protected:
  Server server_{"127.0.0.1", 0, kSecret};
  std::unique_ptr<Client> client_ = client_of(server_);
};

TEST_F(Operations, SetAndGet) {
  const std::string bytes("a\0b\n\xff", 5);
  client_->set("key", bytes);
  EXPECT_EQ(client_->get("key", milliseconds(0)), bytes);
  EXPECT_EQ(client_->try_get("key"), bytes);
  EXPECT_EQ(client_->try_get("other"), std::nullopt);
  client_->set("key", "");
  EXPECT_EQ(client_->get("key", milliseconds(0)), "");
  client_->set("", "of the empty key");
  EXPECT_EQ(client_->get("", milliseconds(0)), "of the empty key");
}

TEST_F(Operations, GetWaits) {
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    client_of(server_)->set("late", "here");
  });
  const auto start = Clock::now();
  EXPECT_EQ(client_->get("late", seconds(5)), "here");
  EXPECT_GE(Clock::now() - start, milliseconds(90));
  later.join();
}

TEST_F(Operations, WaitingEndsInTime) {
  const auto start = Clock::now();
  EXPECT_THROW(client_->get("never", milliseconds(150)), TimedOut);
  EXPECT_THROW(client_->wait({"never", "ever"}, milliseconds(150)), TimedOut);
  const auto took = Clock::now() - start;
  EXPECT_GE(took, milliseconds(290));
  EXPECT_LT(took, seconds(3));
  expect_failure(ExitCode::kEnvironment, "no rank set 'never'",
                 [&] { client_->get("never", milliseconds(1)); });
}

TEST_F(Operations, OneThatWaitsHoldsUpNoOther) {
  std::thread waiter([&] { EXPECT_EQ(client_->get("x", seconds(10)), "1"); });
  const auto start = Clock::now();
  for (int i = 0; i < 100; ++i) client_->add("n", 1);
  EXPECT_LT(Clock::now() - start, seconds(3));
  client_->set("x", "1");
  waiter.join();
}

TEST_F(Operations, WaitForSeveralInAnyOrder) {
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    client_->wait({"a", "b", "c"}, seconds(10));
    done = true;
  });
  for (const char* key : {"c", "a"}) client_->set(key, "");
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(done);
  client_->append("b", "");
  waiter.join();
}

TEST_F(Operations, Add) {
  EXPECT_EQ(client_->add("n", 5), 5);
  EXPECT_EQ(client_->add("n", -7), -2);
  EXPECT_EQ(client_->get("n", milliseconds(0)), "-2");
  client_->set("n", "40");
  EXPECT_EQ(client_->add("n", 2), 42);
  client_->set("word", "fourty");
  expect_failure(ExitCode::kEnvironment, "holds no number", [&] { client_->add("word", 1); });
  client_->set("big", "9223372036854775807");
  expect_failure(ExitCode::kEnvironment, "overflows", [&] { client_->add("big", 1); });
}

TEST_F(Operations, CompareSet) {
  EXPECT_EQ(client_->compare_set("k", "wanted", "new"), "wanted");  // not there: as c10d
  EXPECT_FALSE(client_->check({"k"}));
  EXPECT_EQ(client_->compare_set("k", "", "first"), "first");
  EXPECT_EQ(client_->compare_set("k", "other", "second"), "first");
  EXPECT_EQ(client_->compare_set("k", "first", "second"), "second");
  EXPECT_EQ(client_->get("k", milliseconds(0)), "second");
}

TEST_F(Operations, CheckDeleteSize) {
  EXPECT_EQ(client_->size(), 0);
  client_->multi_set({"a", "b", "ab", "abc"}, {"1", "2", "3", "4"});
  EXPECT_EQ(client_->size(), 4);
  EXPECT_TRUE(client_->check({"a", "b"}));
  EXPECT_TRUE(client_->check({}));
  EXPECT_FALSE(client_->check({"a", "z"}));
  EXPECT_TRUE(client_->remove("a"));
  EXPECT_FALSE(client_->remove("a"));
  EXPECT_EQ(client_->size(), 3);
  EXPECT_EQ(client_->remove_prefix("ab"), 2);
  EXPECT_EQ(client_->remove_prefix("ab"), 0);
  EXPECT_EQ(client_->size(), 1);
  EXPECT_TRUE(client_->remove("b"));
  EXPECT_EQ(server_.counts().bytes, 0);
}

TEST_F(Operations, AppendAndMultiGet) {
  client_->append("log", "one,");
  client_->append("log", "two");
  client_->set("x", "y");
  EXPECT_EQ(client_->multi_get({"log", "x"}, milliseconds(0)),
            (std::vector<std::string>{"one,two", "y"}));
  EXPECT_THROW(client_->multi_get({"log", "z"}, milliseconds(20)), TimedOut);
  EXPECT_TRUE(client_->multi_get({}, milliseconds(0)).empty());
}

TEST_F(Operations, MultiTryGetWaitsForNothing) {
  client_->set("a", "1");
  client_->set("c", "");
  const int64_t before = server_.counts().requests;
  EXPECT_EQ(client_->multi_try_get({"a", "b", "c", "a"}),
            (std::vector<std::string>{"1", "", "", "1"}));
  EXPECT_EQ(server_.counts().requests - before, 1);
  EXPECT_TRUE(client_->multi_try_get({}).empty());
}

TEST_F(Operations, AWaitThatIsInterruptedAsksOnlyOnce) {
  const int64_t before = server_.counts().requests;
  int looks = 0;
  EXPECT_FALSE(client_->wait_unless({"never"}, seconds(30), [&] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(server_.counts().requests - before, 1);
  // The connection of the wait is not used again: its answer would be taken for another's.
  client_->set("never", "now");
  EXPECT_EQ(client_->get("never", milliseconds(0)), "now");
  EXPECT_TRUE(client_->wait_unless({"never"}, seconds(30), [] { return true; }));
  EXPECT_THROW(client_->wait_unless({"other"}, milliseconds(20), [] { return false; }), TimedOut);
}

TEST_F(Operations, Missing) {
  for (const int rank : {0, 1, 3, 4}) client_->set(str("lost/", rank), "");
  Missing missing = client_->missing("lost/", 6);
  EXPECT_EQ(missing.count, 2);
  EXPECT_EQ(missing.first, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(client_->missing("lost/", 2).count, 0);
  missing = client_->missing("nobody/", 100'000);
  EXPECT_EQ(missing.count, 100'000);
  std::vector<int64_t> first(16);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_EQ(missing.first, first);
  expect_failure(ExitCode::kEnvironment, "not understood",
                 [&] { client_->missing("x", int64_t{1} << 40); });
}

TEST_F(Operations, ManyThreadsOneClient) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) client_->add("sum", 1);
      client_->set(str("done/", t), "");
      client_->wait(
          {"done/0", "done/1", "done/2", "done/3", "done/4", "done/5", "done/6", "done/7"},
          seconds(10));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client_->add("sum", 0), 1600);
}

TEST_F(Operations, LargeValues) {
  const std::string large(kMaxValueBytes, 'v');
  client_->set("large", large);
  EXPECT_EQ(client_->get("large", milliseconds(0)), large);
  expect_failure(ExitCode::kEnvironment, "not understood", [&] { client_->set("l", large + "v"); });
  expect_failure(ExitCode::kEnvironment, "at most", [&] { client_->append("large", "v"); });
  expect_failure(ExitCode::kEnvironment, "not understood",
                 [&] { client_->set(std::string(kMaxKeyBytes + 1, 'k'), ""); });
  EXPECT_EQ(client_->get("large", milliseconds(0)).size(), large.size());
}

TEST(Connecting, WaitsForAServerThatStartsLater) {
  int port = 0;
  { port = Server("127.0.0.1", 0, "").port(); }
  std::unique_ptr<Server> server;
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(200));
    server = std::make_unique<Server>("127.0.0.1", port, "");
  });
  Client client("localhost", port, "", seconds(10));
  client.set("a", "b");
  later.join();
}

TEST(Connecting, SaysWhenNobodyListens) {
  int port = 0;
  { port = Server("127.0.0.1", 0, "").port(); }
  const auto start = Clock::now();
  EXPECT_THROW(Client("127.0.0.1", port, "", milliseconds(300)), Unreachable);
  EXPECT_LT(Clock::now() - start, seconds(3));
  expect_failure(ExitCode::kEnvironment, "'fe80::1%nosuch' is no address here",
                 [&] { Client("fe80::1%nosuch", port, "", milliseconds(50)); });
  EXPECT_THROW(Client("fe80::1%nosuch", port, "", milliseconds(50)), WrongAddress);
}

TEST(Connecting, AServerThatGoesIsNoticed) {
  auto server = std::make_unique<Server>("127.0.0.1", 0, "");
  auto client = client_of(*server, "");
  client->set_answer_timeout(milliseconds(300));
  std::thread waiter([&] { EXPECT_THROW(client->get("never", seconds(60)), Unreachable); });
  std::this_thread::sleep_for(milliseconds(100));
  server.reset();
  waiter.join();  // at once: the connection was closed
  EXPECT_THROW(client->set("a", "b"), Unreachable);
}

TEST(Connecting, AClientThatIsStoppedWaitsNoLonger) {
  const Server server("127.0.0.1", 0, "");
  auto client = client_of(server, "");
  std::thread waiter([&] { EXPECT_THROW(client->get("never", seconds(60)), Unreachable); });
  std::this_thread::sleep_for(milliseconds(100));
  client->stop();
  waiter.join();
  EXPECT_THROW(client->set("a", "b"), Unreachable);
}

}  // namespace
}  // namespace octavo::rendezvous

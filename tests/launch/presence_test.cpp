#include "launch/presence.h"

#include <gtest/gtest.h>

#include "rendezvous/server.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Nodes = std::vector<int>;

TEST(PresenceWatch, WhoseKeyChangesIsThere) {
  PresenceWatch watch(3);
  PresenceWatch::Clock::time_point now{};
  EXPECT_EQ(watch.there(), Nodes{0});
  watch.see({"", "a 0", ""}, now += seconds(1));
  EXPECT_EQ(watch.there(), (Nodes{0, 1}));
  EXPECT_GT(watch.silent(2), kNodeLost);
  for (int beat = 0; beat < 20; ++beat)
    watch.see({"", "a 0", "b " + std::to_string(beat)}, now += milliseconds(500));
  EXPECT_EQ(watch.there(), (Nodes{0, 2}));
  EXPECT_EQ(watch.silent(1), milliseconds(10'000));
  EXPECT_EQ(watch.silent(2), milliseconds(0));
  watch.see({"", "other 0", ""}, now += milliseconds(500));  // another launcher; one that has left
  EXPECT_EQ(watch.there(), (Nodes{0, 1}));
  EXPECT_GT(watch.silent(2), kNodeLost);
}

// A node 0 that stood still for an hour has seen nobody, and misses nobody.
TEST(PresenceWatch, OnlyTimeInWhichItLooksCounts) {
  PresenceWatch watch(2);
  PresenceWatch::Clock::time_point now{};
  watch.see({"", "a 0"}, now += seconds(1));
  watch.see({"", "a 0"}, now += std::chrono::hours(1));
  EXPECT_EQ(watch.there(), (Nodes{0, 1}));
  EXPECT_EQ(watch.silent(1), milliseconds(2'000));
}

TEST(PresenceWatch, OneMessageForAllNodes) {
  rendezvous::Server server("127.0.0.1", 0, "");
  rendezvous::Client client("127.0.0.1", server.port(), "", seconds(5));
  PresenceWatch watch(1000);
  client.set(here_key(7), "a 0");
  const int64_t before = server.counts().requests;
  watch.look(client);
  EXPECT_EQ(server.counts().requests - before, 1);
  EXPECT_EQ(watch.there(), (Nodes{0, 7}));
}

TEST(PresenceBeat, IsSeenAndLeaves) {
  rendezvous::Server server("127.0.0.1", 0, "");
  rendezvous::Client client("127.0.0.1", server.port(), "", seconds(5));
  PresenceWatch watch(2);
  const auto wait_until = [&](bool there) {
    for (int tries = 0; tries < 200 && (watch.there().size() == 2) != there; ++tries) {
      std::this_thread::sleep_for(milliseconds(50));
      watch.look(client);
    }
    return (watch.there().size() == 2) == there;
  };
  auto beat = std::make_unique<PresenceBeat>(client, 1);
  EXPECT_TRUE(wait_until(true));
  beat->leave();
  EXPECT_TRUE(wait_until(false));
  beat = std::make_unique<PresenceBeat>(client, 1);
  EXPECT_TRUE(wait_until(true));
  beat.reset();  // without a word, as when it is killed
  EXPECT_TRUE(wait_until(false));
}

}  // namespace
}  // namespace octavo::launch

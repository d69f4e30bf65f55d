#include "dist/waiting_ranks.h"

#include <gtest/gtest.h>

#include "dist/key_value_store.h"

namespace octavo::dist {
namespace {

class InMemory : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override { values_[key] = value; }
  std::string set_first(const std::string& key, const std::string& value) override {
    return values_.try_emplace(key, value).first->second;
  }
  int64_t add(const std::string& /*key*/, int64_t /*delta*/) override { return 0; }
  std::optional<std::string> try_get(const std::string& key) override {
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  rendezvous::Missing missing(const std::string& prefix, int64_t n) override {
    rendezvous::Missing missing;
    for (int64_t i = 0; i < n; ++i)
      if (!values_.contains(prefix + std::to_string(i)) && ++missing.count <= 16)
        missing.first.push_back(i);
    return missing;
  }
  std::optional<std::string> death_of(int64_t /*rank*/) override { return std::nullopt; }
  std::optional<std::string> wait_for(const std::string& key,
                                      std::chrono::milliseconds /*timeout*/) override {
    return try_get(key);
  }
  void stop() override {}

 private:
  std::map<std::string, std::string> values_;
};

WaitingPlace collective(const std::string& name, int64_t order, int rank, int size = 3) {
  return {.name = name, .order = order, .size = size, .rank = rank};
}

TEST(WaitingRanks, TheFirstIsToldWhoHasNotCome) {
  InMemory store;
  WaitingRanks zero(0), one(1), two(2);
  EXPECT_EQ(zero.ask(store, collective("sum", 5, 0))->text(), "ranks 1, 2");
  EXPECT_FALSE(one.ask(store, collective("sum", 5, 1)).has_value()) << "another asks";
  const auto absent = zero.ask(store, collective("sum", 5, 0));
  EXPECT_EQ(absent->text(), "rank 2");
  EXPECT_FALSE(absent->all_elsewhere());
  EXPECT_FALSE(two.ask(store, collective("sum", 5, 2)).has_value());
  EXPECT_EQ(zero.ask(store, collective("sum", 5, 0))->count, 0);
}

TEST(WaitingRanks, GroupsOfANodeHaveTheirOwnRanks) {
  InMemory store;
  WaitingRanks five(5);
  WaitingPlace place{.name = "sum", .order = 1, .first = 4, .stride = 1, .size = 4, .rank = 1};
  EXPECT_EQ(five.ask(store, place)->text(), "ranks 4, 6, 7");
  WaitingRanks nine(9);
  place = {.name = "between nodes", .order = 1, .first = 1, .stride = 8, .size = 4, .rank = 1};
  EXPECT_EQ(nine.ask(store, place)->text(), "ranks 1, 17, 25");
  WaitingRanks many(0);
  EXPECT_EQ(many.ask(store, collective("all", 1, 0, 40))->text(),
            "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 23 more");
}

// Somewhere else counts when it is said anew, and not when it was once so.
TEST(WaitingRanks, WhoWaitsElsewhereSaysSoAgain) {
  InMemory store;
  WaitingRanks zero(0), one(1);
  one.ask(store, collective("earlier", 3, 1, 2));
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(zero.ask(store, collective("sum", 5, 0, 2))->all_elsewhere()) << "stale";
  one.ask(store, collective("earlier", 3, 1, 2));
  const auto absent = zero.ask(store, collective("sum", 5, 0, 2));
  ASSERT_TRUE(absent->all_elsewhere());
  EXPECT_EQ(absent->elsewhere[0].rank, 1);
  EXPECT_EQ(absent->elsewhere[0].place.name, "earlier");
  EXPECT_EQ(absent->elsewhere[0].place.order, 3);
}

TEST(WaitingRanks, WhatIsNoPlaceIsNone) {
  InMemory store;
  WaitingRanks zero(0);
  for (const char* text : {"", "1", "1 2", "1 x sum", "1  sum", "99 99999999999999999999 sum"}) {
    store.set("waits/at/1", text);
    EXPECT_FALSE(zero.ask(store, collective("sum", 5, 0, 2))->all_elsewhere()) << text;
  }
}

}  // namespace
}  // namespace octavo::dist

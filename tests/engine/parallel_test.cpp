#include "engine/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/harness.h"

namespace octavo::engine {
namespace {

struct Part {
  int64_t first, end;
  std::thread::id thread;
};

std::vector<Part> parts_of(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  std::vector<Part> parts;
  parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const std::lock_guard lock(mutex);
    parts.push_back({first, last, std::this_thread::get_id()});
  });
  return parts;
}

// Waits until it holds, at most ten seconds; whether it does.
template <class Condition>
bool wait_for(const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return holds();
}

TEST(ParallelForTest, UsesEveryThread) {
  for (const int threads : {1, 2, 3, 5}) {
    const Threads set(threads);
    std::mutex mutex;
    std::set<std::thread::id> used;
    std::atomic<int> count = 0;
    parallel_for(0, 1000, 1, [&](int64_t, int64_t) {
      {
        const std::lock_guard lock(mutex);
        used.insert(std::this_thread::get_id());
        count = static_cast<int>(used.size());
      }
      // Or the first to come might do all of it.
      EXPECT_TRUE(wait_for([&] { return count == threads; }));
    });
    EXPECT_EQ(used.size(), static_cast<size_t>(threads));
  }
}

TEST(ParallelForTest, OneThatStandsStillKeepsOnlyItsPiece) {
  const Threads set(2);
  std::atomic<int64_t> done = 0;
  parallel_for(0, 1600, 1, [&](int64_t first, int64_t end) {
    if (first == 0) EXPECT_TRUE(wait_for([&] { return done == 1600 - end; }));
    done += end - first;
  });
  EXPECT_EQ(done, 1600);
}

TEST(ParallelForTest, CoversEveryNumberOnce) {
  for (const int threads : {1, 2, 3, 4})
    for (const int64_t count : {0, 1, 2, 3, 5, 7, 64, 1001}) {
      const Threads set(threads);
      std::vector<int> seen(static_cast<size_t>(count));
      for (const Part& part : parts_of(10, 10 + count, 2))
        for (int64_t i = part.first; i < part.end; ++i) ++seen[static_cast<size_t>(i - 10)];
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1))
          << count << " numbers, " << threads << " threads";
    }
}

TEST(ParallelForTest, LeavesSmallWorkToTheCaller) {
  const Threads set(4);
  EXPECT_EQ(parts_of(0, 199, 100).size(), 1u);
  EXPECT_EQ(parts_of(0, 200, 100).size(), 2u);
  for (const Part& part : parts_of(0, 1000, 30)) EXPECT_GE(part.end - part.first, 30);
}

TEST(ParallelForTest, IsOnePartInsideAnother) {
  const Threads set(2);
  std::mutex mutex;
  std::vector<size_t> inner;
  parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    const size_t parts = parts_of(0, 100, 1).size();
    const std::lock_guard lock(mutex);
    inner.push_back(parts);
  });
  EXPECT_EQ(inner, (std::vector<size_t>{1, 1}));
}

TEST(ParallelForTest, ThrowsWhatAPartThrew) {
  const Threads set(2);
  for (const int64_t bad : {0, 99})
    EXPECT_THROW(parallel_for(0, 100, 1,
                              [&](int64_t first, int64_t end) {
                                if (first <= bad && bad < end) throw std::runtime_error("part");
                              }),
                 std::runtime_error);
}

}  // namespace
}  // namespace octavo::engine

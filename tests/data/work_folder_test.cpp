// Claims of processes that work together: one owner that lives, none that is waited for in vain.

#include "data/work_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "data/stages.h"
#include "helpers.h"

namespace octavo::data {
namespace {

// Items that somebody has, or had.
std::set<std::string> claimed(const WorkFolder& work) {
  std::set<std::string> items;
  for (const auto& entry : fs::directory_iterator(work.path() / "claims"))
    items.insert(entry.path().stem().string());  // without the owner's number
  return items;
}

TEST(WorkFolder, AnItemHasOneOwner) {
  Scratch scratch;
  WorkFolder first(scratch / "out");
  {
    WorkFolder second(scratch / "out");
    EXPECT_TRUE(first.claim("chunk-000001"));
    EXPECT_FALSE(second.claim("chunk-000001"));
    EXPECT_TRUE(second.claim("chunk-000002"));
    EXPECT_EQ(first.others(), 1u);
    EXPECT_EQ(claimed(first), (std::set<std::string>{"chunk-000001", "chunk-000002"}));
  }
  EXPECT_EQ(first.others(), 0u);
  EXPECT_TRUE(first.claim("chunk-000002")) << "it was given back";
}

TEST(WorkFolder, WhatIsDoneIsNotClaimedAgain) {
  Scratch scratch;
  WorkFolder first(scratch / "out"), second(scratch / "out");
  ASSERT_TRUE(first.claim("a"));
  first.publish("a", {{"tokens", 7}});
  EXPECT_FALSE(second.claim("a"));
  EXPECT_TRUE(claimed(second).empty());
  EXPECT_FALSE(second.publish_once("a", {{"tokens", 8}}));
  EXPECT_EQ(second.result("a").value(), Json({{"tokens", 7}}));
  EXPECT_FALSE(second.result("b").has_value());
}

TEST(WorkFolder, ADamagedResultIsRefused) {
  Scratch scratch;
  WorkFolder work(scratch / "out");
  work.publish("a", {{"tokens", 7}});
  const fs::path path = work.path() / "done" / "a";
  std::string text = get_file(path);
  text[text.size() - 3] = '8';
  put_file(path, text);
  expect_failure([&] { work.result("a"); }, ExitCode::kDamaged, {"done/a", "delete"});
}

TEST(WorkFolder, AProcessOfThisMachineThatDiedIsReplacedAtOnce) {
  Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    auto* work = new WorkFolder(scratch / "out");  // never given back
    ::_exit(work->claim("a") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  WorkFolder work(scratch / "out");
  EXPECT_EQ(claimed(work).size(), 1u);
  EXPECT_TRUE(work.claim("a"));
  EXPECT_EQ(work.others(), 0u);
  WorkFolder third(scratch / "out");
  EXPECT_FALSE(third.claim("a")) << "the second owner lives";
}

// Of another machine only signs of life are seen.
TEST(WorkFolder, AProcessOfAnotherMachineIsReplacedWhenItIsSilent) {
  using std::chrono::milliseconds;
  Scratch scratch;
  WorkFolder work(scratch / "out", 1.5);  // far above what a busy machine is late
  const fs::path card = work.path() / "workers" / "far-1-1", claim = work.path() / "claims" / "a.0";
  put_file(card,
           Json{{"id", "far-1-1"}, {"host", "far"}, {"pid", 1}, {"pid_space", "x"}, {"start", "1"}}
               .dump());
  fs::create_hard_link(card, claim);
  for (int i = 0; i < 20; ++i) {  // longer than it takes
    EXPECT_FALSE(work.claim("a"));
    std::this_thread::sleep_for(milliseconds(100));
    fs::last_write_time(card, fs::file_time_type::clock::now());
  }
  EXPECT_FALSE(work.claim("a"));
  std::this_thread::sleep_for(milliseconds(1600));
  EXPECT_TRUE(work.claim("a"));
  EXPECT_FALSE(fs::exists(card));
}

TEST(WorkFolder, AProcessThatWasReplacedSaysSo) {
  Scratch scratch;
  WorkFolder work(scratch / "out");
  fs::remove(work.path() / "workers" / work.id());
  expect_failure([&] { work.claim("a"); }, ExitCode::kEnvironment, {"no sign of life", "again"});
}

TEST(WorkFolder, WhatAKilledProcessWasRemovingIsRemoved) {
  Scratch scratch;
  put_file(scratch / "out" / str(kWorkFolderName, ".tmp-7-7") / "done" / "a", "left");
  put_file(scratch / "out" / "train-00000.tok", "kept");
  { WorkFolder work(scratch / "out"); }
  WorkFolder::remove(scratch / "out");
  EXPECT_EQ(get_folder(scratch / "out").size(), 1u);
  WorkFolder::remove(scratch / "out");  // nothing there
  EXPECT_EQ(get_file(scratch / "out" / "train-00000.tok"), "kept");
}

// The items of a stage that take no time, in the order in which the process does them.
struct Items {
  std::vector<size_t> order;
  StageResult result;
};

Items do_items(WorkFolder& work, size_t count, const std::function<void(size_t)>& each = {}) {
  Items items;
  const auto do_one = [&](size_t number) {
    items.order.push_back(number);
    if (each) each(items.order.size());
    return Json::object();
  };
  items.result = do_stage(work, {"item", "testing", count, do_one, true});
  EXPECT_EQ(items.result.items, items.order.size());
  return items;
}

TEST(Stage, IsDoneInOrderWithoutListingWhatIsDoneForEachItem) {
  Scratch scratch;
  WorkFolder work(scratch / "out");
  const Items items = do_items(work, 100);
  ASSERT_EQ(items.order.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(items.order[i], i);
  EXPECT_LT(items.result.listings, 50u) << "one at its start, and one a second";
  EXPECT_TRUE(do_items(work, 100).order.empty()) << "all is done";
}

TEST(Stage, OfAProcessThatIsNotAloneBeginsAnywhere) {
  Scratch scratch;
  WorkFolder first(scratch / "out"), second(scratch / "out");
  const Items items = do_items(second, 50);
  ASSERT_EQ(items.order.size(), 50u);
  for (size_t i = 1; i < 50; ++i) EXPECT_EQ(items.order[i], (items.order[i - 1] + 1) % 50);
}

TEST(Stage, LeavesWhatOthersHaveToThem) {
  Scratch scratch;
  WorkFolder first(scratch / "out"), second(scratch / "out");
  for (const size_t number : {3, 4}) ASSERT_TRUE(first.claim(item_name("item", number)));
  const Items items = do_items(second, 20, [&](size_t done) {
    if (done < 18) return;
    for (const size_t number : {3, 4}) first.publish(item_name("item", number), Json::object());
  });
  EXPECT_EQ(items.order.size(), 18u);
  EXPECT_EQ(std::ranges::count(items.order, 3u) + std::ranges::count(items.order, 4u), 0);
}

TEST(Stage, TakesOverWhatTheDeadHad) {
  Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    auto* work = new WorkFolder(scratch / "out");  // never given back
    ::_exit(work->claim(item_name("item", 5)) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  WorkFolder work(scratch / "out");
  EXPECT_EQ(do_items(work, 20).order.size(), 20u);
}

TEST(Stage, IsDoneOnceByManyAtOnce) {
  constexpr size_t kItems = 120;
  Scratch scratch;
  std::array<std::atomic<int>, kItems> times{};
  std::vector<std::thread> processes;
  for (int i = 0; i < 4; ++i)
    processes.emplace_back([&] {
      WorkFolder work(scratch / "out");
      for (const size_t number : do_items(work, kItems).order) ++times[number];
    });
  for (std::thread& process : processes) process.join();
  for (size_t i = 0; i < kItems; ++i) EXPECT_EQ(times[i], 1) << i;
}

TEST(WorkFolder, AnOwnersNameCannotLeaveTheFolder) {
  Scratch scratch;
  put_file(scratch / "out" / "victim", "kept");
  WorkFolder work(scratch / "out", 0);
  put_file(
      work.path() / "claims" / "a.0",
      Json{{"id", "../../victim"}, {"host", "x"}, {"pid", 1}, {"pid_space", "x"}, {"start", ""}}
          .dump());
  EXPECT_THROW(work.claim("a"), Error);
  EXPECT_EQ(get_file(scratch / "out" / "victim"), "kept");
}

}  // namespace
}  // namespace octavo::data

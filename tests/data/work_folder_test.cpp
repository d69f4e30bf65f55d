// Claims of processes that work together: one owner that lives, none that is waited for in vain.

#include "data/work_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/log.h"
#include "helpers.h"

namespace octavo::data {
namespace {

TEST(WorkFolder, AnItemHasOneOwner) {
  Scratch scratch;
  WorkFolder first(scratch / "out");
  {
    WorkFolder second(scratch / "out");
    EXPECT_TRUE(first.claim("chunk-000001"));
    EXPECT_FALSE(second.claim("chunk-000001"));
    EXPECT_TRUE(second.claim("chunk-000002"));
    EXPECT_EQ(first.others(), 1u);
    EXPECT_EQ(first.claimed(), (std::set<std::string>{"chunk-000001", "chunk-000002"}));
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
  EXPECT_TRUE(second.claimed().empty());
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
  EXPECT_EQ(work.claimed().size(), 1u);
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

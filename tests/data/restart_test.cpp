// kill -9 at any moment leaves a folder that is finished or can be taken up, and the result is the
// same.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include "base/signals.h"
#include "data/dataset_index.h"
#include "data/journal.h"
#include "data/sources.h"
#include "data/token_data.h"
#include "helpers.h"

namespace octavo::data {
namespace {

constexpr int kStoppedCode = static_cast<int>(ExitCode::kStopped);

// How an action ends in a process of its own: a request to stop holds for the rest of a process.
int code_of_child(const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Runs prepare() in a child and kills it after `seconds`; whether it finished first.
bool finished_before_kill(const PrepareOptions& options, double seconds) {
  const pid_t child = start_prepare(options);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) EXPECT_EQ(WEXITSTATUS(status), 0);
  return WIFEXITED(status);
}

TEST(Restart, KilledAtAnyMomentItGoesOnToTheSameBytes) {
  Scratch scratch;
  put_file(scratch / "in/a.jsonl", make_jsonl(2 << 20, 1));
  for (uint64_t i = 0; i < 5; ++i) put_file(scratch / str("in/", i, ".txt"), make_text(100'000, i));
  PrepareOptions options = quiet_options({scratch / "in"}, scratch / "whole");
  options.shard_tokens = 150'000;
  options.workers = 2;
  double seconds = prepare(options).seconds;
  const auto wanted = get_folder(scratch / "whole");
  EXPECT_GT(wanted.size(), 15u);

  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> part(0, 1);
  int kills = 0, taken_up = 0;
  // On a busy machine a kill may come before the first shard is whole: such rounds are made again.
  for (int round = 0; round < 12 && (kills < 5 || taken_up < 3); ++round) {
    options.output = scratch / str("killed", round);
    for (int attempt = 0; attempt < 6; ++attempt) {
      if (finished_before_kill(options, part(random) * seconds * 0.7)) {
        seconds *= 0.7;  // the whole one had been slow
        break;
      }
      ++kills;
      // Either nothing claims to be complete, or it is.
      if (fs::exists(options.output / kIndexName)) EXPECT_NO_THROW(inspect(options.output, true));
    }
    taken_up += prepare(options).shards_reused > 0;
    EXPECT_TRUE(get_folder(options.output) == wanted) << "round " << round;
  }
  EXPECT_GE(kills, 5);
  EXPECT_GE(taken_up, 3);
}

TEST(Restart, KilledBeforeItRemovedItsJournal) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(5000, 1));
  const PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  prepare(options);
  const auto wanted = get_folder(options.output);
  put_file(options.output / "prepare.journal", "left behind");
  prepare(options);
  EXPECT_TRUE(get_folder(options.output) == wanted);
}

TEST(Restart, AStopOnRequestIsSaidAndCanBeTakenUp) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(5000, 1));
  const PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  EXPECT_EQ(code_of_child([&] {
              request_stop("SIGTERM");
              prepare(options);
            }),
            kStoppedCode);
  EXPECT_FALSE(fs::exists(scratch / "out/dataset.json"));
  EXPECT_GT(prepare(options).train_tokens, 4000u);
}

TEST(Restart, AStopEndsTheHashingOfALargeInput) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(5000, 1));
  auto sources = list_sources({scratch / "in.txt"}, scratch / "out");
  EXPECT_EQ(code_of_child([&] {
              request_stop("SIGTERM");
              hash_sources(sources, scratch / "none", 1, true);
            }),
            kStoppedCode);
}

TEST(Restart, AStopKeepsTheHashesSoFar) {
  Scratch scratch;
  for (const char* name : {"a.txt", "b.txt"}) put_file(scratch / name, make_text(5000, 1));
  auto sources = list_sources({scratch / "a.txt", scratch / "b.txt"}, scratch / "out");
  const fs::path list = scratch / "sources.jsonl", second = scratch / "b.txt";
  fs::resize_file(second, uint64_t{64} << 30);  // nothing but holes; a.txt is hashed before it
  for (const bool finished : {true, false}) {
    if (finished) put_file(scratch / kIndexName, "{}");
    const auto stopped_at_second = [&] {
      const int opened = ::inotify_init();
      ::inotify_add_watch(opened, second.c_str(), IN_OPEN);
      std::thread([opened] {
        std::array<char, 256> event{};
        if (::read(opened, event.data(), event.size()) > 0) request_stop("SIGTERM");
      }).detach();
      hash_and_keep(sources, list, 1, true);
    };
    EXPECT_EQ(code_of_child(stopped_at_second), kStoppedCode);
    EXPECT_EQ(fs::exists(list), !finished) << "a finished data set keeps its list";
    fs::remove(scratch / kIndexName);
  }
  EXPECT_EQ(get_file(list).find("b.txt"), std::string::npos);
  fs::remove(scratch / "a.txt");  // it is read no more
  sources.pop_back();
  hash_sources(sources, list, 1, true);
  EXPECT_FALSE(sources.at(0).hash.empty());
}

// Of one process and of several.
TEST(Restart, AnUnfinishedFolderIsNoInput) {
  Scratch scratch;
  for (const char* name : {"prepare.journal", "prepare.shared/done/plan"}) {
    const fs::path folder = scratch / "half";
    put_file(folder / "sources.jsonl", "{\"name\": \"in.txt\", \"text\": \"looks like a row\"}\n");
    put_file(folder / name, "left");
    const PrepareOptions options = quiet_options({folder}, scratch / "out");
    expect_failure([&] { prepare(options); }, ExitCode::kUsage,
                   {"unfinished", folder.string(), "same octavo data prepare command"});
    put_file(folder / kIndexName, "{}");  // as texts that happen to have such a name
    EXPECT_NO_THROW(prepare(options));
    fs::remove_all(folder);
    fs::remove_all(scratch / "out");
  }
}

// The folder as a crash behind the first shard leaves it.
class HalfDone : public testing::Test {
 protected:
  HalfDone() {
    put_file(scratch_ / "in.jsonl", make_jsonl(60'000, 3));
    options_ = quiet_options({scratch_ / "in.jsonl"}, folder_);
    options_.shard_tokens = 10'000;
    prepare(options_);
    wanted_ = get_folder(folder_);
    const DatasetIndex index = read_index(folder_);
    fs::remove(folder_ / kIndexName);
    Journal journal(folder_, index.plan);
    journal.append({.split = "train",
                    .shard = index.splits.at("train").shards[0],
                    .next = {},
                    .skip = options_.shard_tokens});
    put_file(folder_ / "train-00001.tok.tmp", "cut short");
  }

  void expect_reused(int shards) {
    EXPECT_EQ(prepare(options_).shards_reused, shards);
    EXPECT_TRUE(get_folder(folder_) == wanted_);
  }

  Scratch scratch_;
  fs::path folder_ = scratch_ / "out";
  PrepareOptions options_;
  std::map<std::string, std::string> wanted_;
};

TEST_F(HalfDone, IsTakenUp) {
  expect_reused(1);
}

TEST_F(HalfDone, ALineCutShortIsIgnored) {
  const std::string journal = get_file(folder_ / "prepare.journal");
  put_file(folder_ / "prepare.journal", journal + journal.substr(journal.find('\n') + 1, 90));
  expect_reused(1);
}

TEST_F(HalfDone, AJournalCutInsideItsFirstLineStartsOver) {
  put_file(folder_ / "prepare.journal", get_file(folder_ / "prepare.journal").substr(0, 20));
  expect_reused(0);
}

TEST_F(HalfDone, AFinishedShardThatChangedIsMadeAgain) {
  put_file(folder_ / "train-00000.tok", "damaged");
  expect_reused(0);
}

TEST_F(HalfDone, OtherOptionsStartOverAndLeaveNoStrayShard) {
  options_.shard_tokens = 1'000'000;
  EXPECT_EQ(prepare(options_).shards_reused, 0);
  std::vector<std::string> names;
  for (const auto& item : get_folder(folder_)) names.push_back(item.first);
  EXPECT_EQ(names, (std::vector<std::string>{"dataset.json", "sources.jsonl", "train-00000.tok",
                                             "val-00000.tok"}));
}

}  // namespace
}  // namespace octavo::data

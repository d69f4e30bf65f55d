// kill -9 at random moments of saves: nothing that list() shows may be unreadable, ever.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/log.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

// Saves until killed. Runs in a forked child: save() starts no thread and no parallel torch
// operation, so it does not matter which ones the parent had.
[[noreturn]] void save_for_ever(const fs::path& folder, int generation) {
  try {
    for (int i = 0;; ++i) {
      // Every other save replaces an existing step.
      int64_t step = generation * 3 + i / 2 % 5;
      double mark = (generation * 37 + i) % 256;
      save(folder, sample_state(step, mark, 2048), {.best = i % 3 == 0, .keep = 3});
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "save failed: %s\n", error.what());
    ::_exit(3);
  }
}

int count_hidden(const fs::path& folder) {
  int hidden = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    hidden += entry.path().filename().string().starts_with(".");
  return hidden;
}

TEST(CheckpointCrash, KillDuringSaveLeavesEveryCheckpointLoadable) {
  Scratch folder;
  save(folder.path(), sample_state(0, 1, 2048), {.best = true});
  set_log_level(LogLevel::kWarn);
  std::mt19937 random(std::random_device{}());
  int interrupted = 0;
  constexpr int kKills = 30;
  for (int round = 0; round < kKills; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path(), round);
    std::this_thread::sleep_for(std::chrono::microseconds(500 + random() % 60'000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;

    interrupted += count_hidden(folder.path()) > 0;
    int64_t warnings = warning_count();
    auto rows = list(folder.path());
    ASSERT_FALSE(rows.empty());
    for (const Summary& row : rows) {
      EXPECT_EQ(verify(row.path), std::vector<std::string>()) << row.path;
      EXPECT_EQ(mixture(load(row.path)), "") << row.path;
    }
    EXPECT_EQ(mixture(load_resolved(folder.path(), "latest").state), "");
    EXPECT_EQ(mixture(load_resolved(folder.path(), "best").state), "");
    // Not by a fallback: the links never dangle and never name a damaged one.
    EXPECT_EQ(warning_count(), warnings) << "round " << round;
  }
  // Most of a save's time is spent with its temporary folder there.
  EXPECT_GT(interrupted, kKills / 3);
  save(folder.path(), sample_state(1000, 1), {.keep = 1});
  EXPECT_EQ(count_hidden(folder.path()), 0);
  set_log_level(LogLevel::kInfo);
}

// Two saves into one directory wait for each other; neither takes the other's temporary folder for
// a leftover.
TEST(CheckpointCrash, ConcurrentSavesExcludeEachOther) {
  Scratch folder;
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int i = 0; i < 6; ++i) save(folder.path(), sample_state(i, process * 10 + i), {});
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "save failed: %s\n", error.what());
        ::_exit(3);
      }
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  auto rows = list(folder.path());
  EXPECT_EQ(rows.size(), 6);
  for (const Summary& row : rows) EXPECT_EQ(mixture(load(row.path)), "");
  EXPECT_EQ(count_hidden(folder.path()), 0);
}

}  // namespace
}  // namespace octavo::checkpoint

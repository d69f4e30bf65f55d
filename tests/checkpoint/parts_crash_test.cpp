// kill -9 of one rank after every stage of its save: what was whole stays whole, and the next save
// cleans up.
#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"
#include "checkpoint/ranks.h"

namespace octavo::checkpoint {
namespace {

constexpr int kRanks = 2;

// Runs in a forked child: the state was made before, and a save of small tensors starts no thread.
[[noreturn]] void save_and_die(const fs::path& folder, State state, int rank, int stages,
                               const std::string& token) {
  int seen = 0;
  const SaveOptions options = {.best = true, .keep = 1, .on_stage = [&](std::string_view) {
                                 if (seen++ == stages) ::kill(::getpid(), SIGKILL);
                               }};
  try {
    Saver saver(folder, {.part = {rank, kRanks, kRanks, token}, .timeout = 60});
    saver.save(std::move(state), options);
    ::_exit(0);
  } catch (const std::exception&) {
    ::_exit(3);  // the other rank did not come
  }
}

// Whether the rank was killed: its save has more stages than that.
bool kill_after(const fs::path& folder, int killed_rank, int stages, double mark) {
  const std::string token = str("kill", killed_rank, "_", stages);
  pid_t children[kRanks];
  for (int rank = 0; rank < kRanks; ++rank) {
    State state = state_of_shard(WholeModel(mark), 5, mark, rank, kRanks);
    children[rank] = ::fork();
    if (children[rank] == 0)
      save_and_die(folder, std::move(state), rank, rank == killed_rank ? stages : 1000, token);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(children[killed_rank], &status, 0), children[killed_rank]);
  const bool killed = WIFSIGNALED(status);
  // The other one may finish what it can; then it goes the way of a job whose rank died.
  const pid_t other = children[1 - killed_rank];
  for (int i = 0; killed && i < 15 && ::waitpid(other, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (killed) ::kill(other, SIGKILL);
  ::waitpid(other, &status, 0);
  return killed;
}

TEST(CheckpointPartsCrash, KillAfterEveryStageOfEveryRank) {
  Scratch folder;
  set_log_level(LogLevel::kError);
  double mark = 1, good = mark;
  for (const auto& outcome : save_together(folder.path(), 5, mark, kRanks, kRanks, "first"))
    ASSERT_EQ(outcome.error, "");
  int kills = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int stages = 0;; ++stages) {
      mark += 1;
      const bool killed = kill_after(folder.path(), rank, stages, mark);
      kills += killed;
      const auto summaries = list(folder.path());
      ASSERT_FALSE(summaries.empty());
      for (const Summary& summary : summaries) {
        EXPECT_EQ(verify(summary.path), std::vector<std::string>());
        EXPECT_EQ(difference(load(summary.path), 3), "") << "rank " << rank << " stage " << stages;
      }
      const double latest =
          load_resolved(folder.path(), "latest").state.extra.at("mark").get<double>();
      EXPECT_TRUE(latest == mark || latest == good) << latest << " after " << good;
      good = latest;
      if (!killed) {
        EXPECT_EQ(latest, mark);  // the save that nobody killed is there
        break;
      }
    }
  }
  // Of the first rank: folder, three files, list, lists, manifest, name, two links; of the other
  // folder, two files, list.
  EXPECT_EQ(kills, 14);
  for (const auto& outcome : save_together(folder.path(), 6, 100, kRanks, kRanks, "last"))
    EXPECT_EQ(outcome.error, "");
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace octavo::checkpoint

#include "launch/supervise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <thread>

#include "base/log_file.h"
#include "base/rank_status.h"
#include "base/relay.h"
#include "expect_failure.h"
#include "scratch.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Every rank runs this text of shell.
Job shell(const std::string& text, int ranks, const Scratch& folder) {
  Job job{.command = {"/bin/sh", "-c", text}, .log_dir = (folder / "logs").string()};
  fs::create_directories(folder / "logs");
  job.first.ranks = job.first.local_ranks = ranks;
  job.first.master_address = "127.0.0.1";
  job.first.master_port = 1;
  job.grace = milliseconds(400);
  return job;
}

Outcome run(const Job& job, int* stop = nullptr) {
  SignalWatch signals;
  int none = 0;
  return supervise(job, signals, stop != nullptr ? *stop : none);
}

std::string log_of(const Scratch& folder, int rank) {
  return read_file(folder / "logs" / str("rank-", rank, ".log"), 1 << 20);
}

// A zombie that nobody has waited for yet is dead enough.
bool alive(pid_t pid) {
  const char state = process_state(pid);
  return state != '\0' && state != 'Z';
}

TEST(Supervise, VariablesAndCodes) {
  const Scratch folder;
  Job job = shell("echo $OCTAVO_RANK of $OCTAVO_RANKS $EXTRA", 3, folder);
  job.variables = {{"EXTRA", "more"}};
  EXPECT_EQ(run(job).code, 0);
  EXPECT_EQ(log_of(folder, 2), "2 of 3 more\n");
  EXPECT_EQ(run(shell("exit 75", 2, folder)).code, 75);
  EXPECT_EQ(run(shell("[ $OCTAVO_RANK = 1 ] || exit 75", 2, folder)).code, 75);
  EXPECT_EQ(run(shell("exit 5", 2, folder)).code, 5);
}

TEST(Supervise, AKilledRankEndsItsPeers) {
  const Scratch folder;
  Job job = shell("echo rank $OCTAVO_RANK is here; [ $OCTAVO_RANK = 1 ] && kill -9 $$; sleep 60", 3,
                  folder);
  std::map<int, std::string> deaths;
  job.on_death = [&](int rank, const std::string& text) { deaths[rank] = text; };
  const auto begin = Clock::now();
  const Outcome outcome = run(job);
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_TRUE(outcome.curable);
  EXPECT_EQ(outcome.what, "rank 1 was killed by signal 9 (Killed); its last line: rank 1 is here");
  EXPECT_EQ(deaths, (std::map<int, std::string>{{1, "killed by signal 9 (Killed)"}}));
}

TEST(Supervise, PeersThatReportAreNotTheCause) {
  const Scratch folder;
  // Rank 0 leaves with 3 at once, as one that has missed rank 1, which ends with its own 4 later.
  const Outcome outcome =
      run(shell("[ $OCTAVO_RANK = 0 ] && exit 3; sleep 0.1; exit 4", 2, folder));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.rank, 1);
}

TEST(Supervise, AStoppedRankIsFoundAndEnded) {
  const Scratch folder;
  const Outcome outcome =
      run(shell("[ $OCTAVO_RANK = 1 ] && kill -STOP $$; sleep 0.2; exit 3", 2, folder));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_NE(outcome.what.find("stood still"), std::string::npos) << outcome.what;
}

TEST(Supervise, SignalsArePassedOnOnce) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const Scratch folder;
    std::signal(number, SIG_DFL);  // nohup ignores one, which a shell cannot undo
    const Job job = shell(
        "count=0; stop() { count=$((count+1)); }; trap stop TERM INT USR1 HUP; echo ready;"
        "i=0; while [ $i -lt 40 ]; do sleep 0.05; i=$((i+1)); [ $count -gt 0 ] && break; done;"
        "sleep 0.1; echo $count; exit $((count > 0 ? 75 : 9))",
        2, folder);
    int stop = 0;
    SignalWatch signals;  // before the thread, which must not take the signal
    std::thread sender([&] {
      const auto ready = [&](int rank) {
        return fs::exists(folder / "logs" / str("rank-", rank, ".log")) &&
               !log_of(folder, rank).empty();
      };
      while (!ready(0) || !ready(1)) std::this_thread::sleep_for(milliseconds(5));
      kill(getpid(), number);
    });
    const Outcome outcome = supervise(job, signals, stop);
    sender.join();
    EXPECT_EQ(outcome.code, 75) << number;
    EXPECT_EQ(stop, number);
    EXPECT_EQ(log_of(folder, 1), "ready\n1\n");
  }
}

// As when nodes have come and there could be more ranks: asked once, they save and leave.
TEST(Supervise, RanksAreAskedToStop) {
  const Scratch folder;
  Job job = shell("trap 'exit 75' USR1; while :; do sleep 0.05; done", 2, folder);
  int looks = 0;
  job.wants_stop = [&](bool has_made_a_step) {
    EXPECT_FALSE(has_made_a_step);  // these ranks have no page
    return ++looks == 2;
  };
  int stop = 0;
  const Outcome outcome = run(job, &stop);
  EXPECT_EQ(outcome.code, 75);
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(stop, 0);  // nobody asked this launcher
  // One that has not yet begun to listen ends by the signal: no failure.
  Job early = shell("sleep 60", 1, folder);
  early.wants_stop = [](bool) { return true; };
  EXPECT_EQ(run(early).cause, Cause::kNone);
}

// A run grows between two steps, and not while its last checkpoint is uploaded.
TEST(Supervise, RanksThatOnlyEndAreNotAskedToStop) {
  const Scratch folder;
  const auto put = [](size_t offset, const char* byte) {
    return str("printf '", byte, "' | dd bs=1 conv=notrunc seek=", offset,
               " of=/proc/self/fd/$OCTAVO_STATUS_FD 2>/dev/null; sleep 2; ");
  };
  const size_t step = offsetof(RankPage, step), ends = offsetof(RankPage, makes_no_more_steps);
  Job job = shell(
      "printf '\\007\\0\\0\\0\\0\\0\\0\\0' | dd bs=1 conv=notrunc seek=" + std::to_string(step) +
          " of=/proc/self/fd/$OCTAVO_STATUS_FD 2>/dev/null; sleep 2; " + put(step, "\\010") +
          put(ends, "\\001"),
      1, folder);
  std::vector<bool> seen;
  job.wants_stop = [&](bool has_made_a_step) {
    if (seen.empty() || seen.back() != has_made_a_step) seen.push_back(has_made_a_step);
    return false;
  };
  EXPECT_EQ(run(job).code, 0);
  EXPECT_EQ(seen, (std::vector<bool>{false, true, false}));
}

// A rank that leaves says what continues the run: its launcher, unless that is asked to stop, too.
TEST(Supervise, RanksKnowThatTheLauncherContinues) {
  const std::string page = str("od -An -tu4 -N4 -j", offsetof(RankPage, launcher_continues),
                               " /proc/$$/fd/$OCTAVO_STATUS_FD; ");
  const std::string wait = "while :; do sleep 0.05; done";
  const Scratch folder;
  int looks = 0;
  Job job = shell(str("trap '", page, "exit 75' USR1; ", wait), 1, folder);
  job.wants_stop = [&](bool) { return ++looks == 2; };
  EXPECT_EQ(run(job).code, 75);
  EXPECT_NE(log_of(folder, 0).find(" 1\n"), std::string::npos) << log_of(folder, 0);
  const Scratch other;
  Job stopped = shell(str("trap : USR1; trap '", page, "exit 75' TERM; ", wait), 1, other);
  looks = 0;
  stopped.wants_stop = [&](bool) {
    if (++looks == 3) kill(getpid(), SIGTERM);
    return looks == 2;
  };
  EXPECT_EQ(run(stopped).code, 75);
  EXPECT_NE(log_of(other, 0).find(" 0\n"), std::string::npos) << log_of(other, 0);
}

// The launcher writes beside the ranks only where one of them has found that the folder is theirs.
TEST(Supervise, RanksSayThatTheyHaveTheirFolder) {
  const Scratch folder;
  const std::string page = str(
      "printf '\\001' | dd bs=1 conv=notrunc 2>/dev/null seek=", offsetof(RankPage, has_run_folder),
      " of=/proc/$$/fd/$OCTAVO_STATUS_FD; ");
  EXPECT_TRUE(run(shell(page + "exit 3", 1, folder)).has_run_folder);
  EXPECT_FALSE(run(shell("exit 3", 1, folder)).has_run_folder);
}

TEST(Supervise, NothingIsLeftBehind) {
  const Scratch folder;
  // A rank's own children are in its process group.
  const Outcome outcome = run(
      shell("[ $OCTAVO_RANK = 0 ] && sleep 0.2 && exit 2; sleep 60 & echo $!; wait", 2, folder));
  EXPECT_EQ(outcome.code, 2);
  const pid_t grandchild = std::stoi(log_of(folder, 1));
  for (int tries = 0; alive(grandchild) && tries < 100; ++tries)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(alive(grandchild));
}

// A rank that waits in the kernel survives SIGKILL for as long as that wait lasts.
TEST(Supervise, ARankThatCannotBeKilledIsNotWaitedFor) {
  const Scratch folder;
  Job job = shell("[ $OCTAVO_RANK = 0 ] && exit 3; echo $$; exec sleep 60", 2, folder);
  job.last_grace = milliseconds(300);
  job.kill_group = [](pid_t) {};
  const auto begin = Clock::now();
  const Outcome outcome = run(job);
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(outcome.kind, EndKind::kUnkillable);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_FALSE(outcome.curable);
  const pid_t left = std::stoi(log_of(folder, 1));
  kill(left, SIGKILL);
  waitpid(left, nullptr, 0);
}

// What a rank said about itself reaches the launcher, however it left.
TEST(Supervise, TheStatusPageOutlivesTheRank) {
  const Scratch folder;
  // A page that is not one of ours, by its number: the descriptor is there and is 4096 bytes.
  const Outcome outcome = run(
      shell("[ -n \"$OCTAVO_STATUS_FD\" ] && [ -e /proc/self/fd/$OCTAVO_STATUS_FD ] || exit 9;"
            "printf '\\003\\000\\172\\014\\003\\000\\000\\000' 1<>/proc/self/fd/$OCTAVO_STATUS_FD;"
            "exit 3",
            1, folder));
  EXPECT_EQ(outcome.kind, EndKind::kDeviceFault) << outcome.what;
}

// Rank 0 leaves because rank 1 hangs, which says nothing; the node of rank 1 is to be blamed.
TEST(Supervise, ARankThatLeavesForAnotherThatHangsIsNotAtFault) {
  const RankEnd ends[] = {
      {.rank = 0, .order = 0, .code = 3, .failure = Failure::kHang, .hanging = 1},
      {.rank = 1, .order = 1, .code = 3, .failure = Failure::kPeerLost}};
  const Outcome outcome = outcome_of(ends, 0);
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_EQ(outcome.kind, EndKind::kHang);
  const Scratch folder;  // kHang is 9, and the page says 1 + the rank behind 40 bytes
  const Outcome read = run(
      shell("printf '\\003\\000\\172\\014\\011\\000\\000\\000' 1<>/proc/self/fd/$OCTAVO_STATUS_FD;"
            "printf '\\006' | dd bs=1 seek=40 conv=notrunc of=/proc/self/fd/$OCTAVO_STATUS_FD;"
            "exit 3",
            1, folder));
  EXPECT_EQ(read.kind, EndKind::kHang) << read.what;
  EXPECT_EQ(read.rank, 5);
}

// It promised a pulse within 0.4 s at step 7, and gives none.
TEST(Supervise, ARankWithoutASignOfLifeIsNamedAndEnded) {
  const Scratch folder;
  Job job = shell(
      "[ $OCTAVO_RANK = 1 ] || exec sleep 60;"
      "printf '\\003\\000\\172\\014\\000\\000\\000\\000\\007\\000\\000\\000\\000\\000\\000\\000"
      "\\001\\000\\000\\000\\000\\000\\000\\000\\000\\204\\327\\027\\000\\000\\000\\000'"
      " 1<>/proc/self/fd/$OCTAVO_STATUS_FD; sleep 60",
      2, folder);
  std::map<int, std::string> deaths;
  job.on_death = [&](int rank, const std::string& text) { deaths[rank] = text; };
  const auto begin = Clock::now();
  const Outcome outcome = run(job);
  EXPECT_LT(Clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(outcome.kind, EndKind::kStoodStill) << outcome.what;
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_TRUE(outcome.curable);
  ASSERT_EQ(deaths.size(), 1u);
  EXPECT_NE(deaths[1].find("no sign of life"), std::string::npos) << deaths[1];
  EXPECT_NE(deaths[1].find("at step 7"), std::string::npos) << deaths[1];
}

TEST(Supervise, AStalledReaderHoldsUpNobody) {
  const Scratch folder;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  Job job = shell(
      "i=0; while [ $i -lt 4000 ]; do echo a line that is long enough, $i; "
      "i=$((i+1)); done; exit 75",
      1, folder);
  job.log_dir.clear();
  const auto begin = Clock::now();
  const Outcome outcome = run(job);
  dup2(before, STDOUT_FILENO);
  for (const int each : {before, ends[0], ends[1]}) close(each);
  EXPECT_EQ(outcome.code, 75);
  EXPECT_LT(Clock::now() - begin, milliseconds(10'000));
}

TEST(Supervise, AReaderThatIsGoneEndsNothing) {
  const Scratch folder;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  Job job = shell("echo one; sleep 0.2; echo two; exit 75", 2, folder);
  job.log_dir.clear();
  const Outcome outcome = run(job);
  dup2(before, STDOUT_FILENO);
  close(before);
  close(ends[1]);
  EXPECT_EQ(outcome.code, 75);
}

TEST(Supervise, RanksDieWithTheLauncher) {
  const Scratch folder;
  const Job job = shell("echo $$; sleep 60", 1, folder);
  const pid_t launcher = fork();
  if (launcher == 0) {
    run(job);
    _exit(0);
  }
  const fs::path log = folder / "logs" / "rank-0.log";
  while (!fs::exists(log) || log_of(folder, 0).empty())
    std::this_thread::sleep_for(milliseconds(10));
  const pid_t rank = std::stoi(log_of(folder, 0));
  EXPECT_EQ(kill(rank, 0), 0);
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  for (int tries = 0; alive(rank) && tries < 200; ++tries)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(alive(rank));
}

TEST(Supervise, AProgramThatIsNotThere) {
  const Scratch folder;
  Job job = shell("", 2, folder);
  job.command = {"/no/such/program"};
  expect_failure(ExitCode::kEnvironment, "No such file or directory", [&] { run(job); });
}

TEST(Supervise, OtherNodesAreLookedForUntilAllAreThere) {
  const Scratch folder;
  const fs::path all_there = folder / "all-there";
  Job job = shell(str("i=0; while [ ! -e '", all_there.string(),
                      "' ] && [ $i -lt 400 ]; do sleep 0.05; i=$((i+1)); done; sleep 0.3"),
                  2, folder);
  job.look = milliseconds(50);
  int looks = 0;
  job.waits_for_nodes = [&] {
    if (++looks == 3) write_file_atomic(all_there, "");
    return looks < 3;
  };
  EXPECT_EQ(run(job).code, 0);
  EXPECT_EQ(looks, 3);
}

// Wrong use comes on every rank alike: it is said once.
TEST(Supervise, AMistakeOfTheUserIsSaidOnce) {
  const Scratch folder;
  // For the others: until the launcher has seen rank 0's end, or for some 8 s.
  const std::string first = (folder / "first").string();
  const std::string after_first =
      str("[ $OCTAVO_RANK = 0 ] && { echo $$ >'", first, "'; exit 2; }; i=0; while { [ ! -s '",
          first, "' ] || kill -0 $(cat '", first,
          "'); } 2>/dev/null && [ $i -lt 160 ]; do sleep 0.05; i=$((i+1)); done; exit 2");
  const auto said_by = [&](const std::string& text, Outcome& outcome) {
    Job job = shell(text, 3, folder);
    job.log_dir.clear();
    job.grace = milliseconds(10'000);
    testing::internal::CaptureStderr();
    outcome = run(job);
    return testing::internal::GetCapturedStderr();
  };
  Outcome outcome;
  std::string said = said_by("echo 'octavo: [data] wanted a file' >&2; " + after_first, outcome);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(outcome.what.ends_with("wanted a file")) << outcome.what;  // no terminal
  EXPECT_TRUE(said.starts_with("octavo: [data] wanted a file\n")) << said;
  EXPECT_EQ(said.find("wanted a file", 20), std::string::npos) << said;
  EXPECT_NE(said.find("2 more ranks say the same"), std::string::npos) << said;
  // What they do not say alike is shown, and so is what is said at any other end.
  said = said_by("echo \"octavo: [data] rank $OCTAVO_RANK is wrong\" >&2; exit 2", outcome);
  for (const char* part :
       {"rank 0 is wrong", "[rank 1] octavo: [data] rank 1 is wrong\n", "rank 2 is"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  said = said_by("echo 'octavo: [dist] lost' >&2; exit 3", outcome);
  for (const char* part : {"[rank 1] octavo: [dist] lost\n", "[rank 2] octavo: [dist] lost\n"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

// The others may need long to leave, or be killed: the first one's words are there before.
TEST(Supervise, AMistakeIsSaidBeforeTheOthersHaveEnded) {
  const Scratch folder;
  Job job = shell(
      "[ $OCTAVO_RANK = 1 ] && { echo 'octavo: [data] wanted a file' >&2; exit 2; }; exec sleep 60",
      2, folder);
  job.log_dir.clear();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string said;  // until the first rank is killed
  job.kill_group = [&](pid_t pid) {
    char buffer[4096];
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    if (said.empty() && got > 0) said.assign(buffer, static_cast<size_t>(got));
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  };
  const Outcome outcome = run(job);
  dup2(before, STDERR_FILENO);
  for (const int each : {before, ends[0], ends[1]}) close(each);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(said.find("[rank 1] octavo: [data] wanted a file\n"), std::string::npos) << said;
}

// A launcher that fails itself shows what it has kept.
TEST(Supervise, LastWordsOutliveAnErrorOfTheLauncher) {
  const Scratch folder;
  Job job = shell(str("echo 'octavo: [data] wanted a file' >&2; : >'", (folder / "said-").string(),
                      "'$OCTAVO_RANK; exec sleep 60"),
                  2, folder);
  job.log_dir.clear();
  const auto latest = Clock::now() + milliseconds(20'000);
  int looks = 0;  // since both ranks have said it: what they said is read before the second
  job.wants_stop = [&](bool) -> bool {
    if (fs::exists(folder / "said-0") && fs::exists(folder / "said-1")) ++looks;
    if (looks < 2 && Clock::now() < latest) return false;
    fail(ExitCode::kEnvironment, "launch", "for a test");
  };
  testing::internal::CaptureStderr();
  expect_failure(ExitCode::kEnvironment, "for a test", [&] { run(job); });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("[rank 1] octavo: [data] wanted a file\n"), std::string::npos) << said;
}

TEST(Output, LinesAreKeptWhole) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Relay relay(ends[1], "[rank 3] ", nullptr);
  relay.feed("first\nsec");
  relay.feed("ond\n\nthi");
  EXPECT_EQ(relay.last_line(), "second");
  relay.feed("rd");
  relay.finish();
  relay.finish();
  EXPECT_EQ(relay.last_line(), "third");
  close(ends[1]);
  char buffer[256];
  const ssize_t got = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(got)),
            "[rank 3] first\n[rank 3] second\n[rank 3] \n[rank 3] third\n");
}

TEST(Output, ALineOfJsonHasItsRankInIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  set_log_json(true);
  Relay relay(ends[1], "[rank 3] ", nullptr);
  relay.feed("{\"rank\":3}\nplain\n");
  relay.finish();
  set_log_json(false);
  close(ends[1]);
  char buffer[256];
  const ssize_t got = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(got)), "{\"rank\":3}\n[rank 3] plain\n");
}

TEST(Output, TheLastLineOfAJsonLogIsItsMessage) {
  Relay relay(-1, "", nullptr);
  relay.feed(R"({"level": "error", "message": "[train] no data"})"
             "\n");
  EXPECT_EQ(relay.last_line(), "[train] no data");
  for (const char* other : {"{\"loss\": 1}", "{ cut", "{}"}) {
    relay.feed(std::string(other) + "\n");
    EXPECT_EQ(relay.last_line(), other);
  }
}

}  // namespace
}  // namespace octavo::launch

// Messages in a file for each rank, and all of them by time.

#include "base/log_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log_merge.h"
#include "scratch.h"

namespace octavo {
namespace {

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

struct LogFile : testing::Test {
  void TearDown() override {
    close_log_file();
    set_log_rank(0);
    set_log_step(0);
    set_log_json(false);
  }
  Scratch scratch;
  const fs::path& folder = scratch.path();
};

TEST_F(LogFile, HasTimeHostRankAndStepOfEveryMessage) {
  set_log_rank(3);
  log_info("said before there is a file");
  const fs::path path = folder / "logs" / log_file_name(3);
  EXPECT_EQ(path.filename(), "rank-00003.jsonl");
  open_log_file(path);
  set_log_step(250);
  log_warn("a \"quoted\" warning\nof two lines");
  keep_in_log_file(LogLevel::kError, "said elsewhere");
  const auto lines = lines_of(path);
  ASSERT_GE(lines.size(), 3u);  // other tests may have spoken before
  const Json early = Json::parse(lines[lines.size() - 3]),
             warning = Json::parse(lines[lines.size() - 2]), error = Json::parse(lines.back());
  EXPECT_EQ(early["message"], "said before there is a file");
  EXPECT_EQ(early["step"], 0);
  EXPECT_EQ(early["level"], "info");
  EXPECT_EQ(warning["message"], "a \"quoted\" warning\nof two lines");
  EXPECT_EQ(warning["rank"], 3);
  EXPECT_EQ(warning["step"], 250);
  EXPECT_EQ(warning["level"], "warning");
  EXPECT_EQ(error["level"], "error");
  const std::string time = warning["time"];
  EXPECT_EQ(time.size(), 27u) << time;
  EXPECT_EQ(time[10], 'T');
  EXPECT_EQ(time.back(), 'Z');
  EXPECT_FALSE(warning["host"].get<std::string>().empty());
  EXPECT_LE(early["time"].get<std::string>(), time);
}

TEST_F(LogFile, HasNoSecrets) {
  open_log_file(folder / "a.jsonl");
  log_warn("cannot fetch https://me:hunter2@example.org/data");
  keep_in_log_file(LogLevel::kError, "nor https://me:hunter2@example.org/more");
  for (const std::string& line : lines_of(folder / "a.jsonl"))
    EXPECT_EQ(line.find("hunter2"), std::string::npos) << line;
}

TEST_F(LogFile, IsRotated) {
  const fs::path path = folder / log_file_name(0);
  open_log_file(path);
  const std::string text(64'000, 'x');
  const uint64_t each = text.size() + 100;
  const auto count = static_cast<int>(5 * kLogFileBytes / each);  // more than is kept
  for (int i = 0; i < count; ++i) {
    set_log_step(i);
    keep_in_log_file(LogLevel::kInfo, text);
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    ++files;
    EXPECT_LE(fs::file_size(entry.path()), kLogFileBytes);
  }
  EXPECT_EQ(files, 1 + kOldLogFiles);
  // What is kept is the newest, without a gap.
  int64_t last = -1;
  const auto result = merge_logs(folder, [&](const LogEntry& entry) {
    if (last >= 0) EXPECT_EQ(entry.step, last + 1);
    last = entry.step;
  });
  EXPECT_EQ(last, count - 1);
  EXPECT_EQ(result.files, files);
  EXPECT_EQ(result.unreadable, 0u);
  EXPECT_GT(result.lines, 3 * kLogFileBytes / each);
}

TEST_F(LogFile, ThatCannotBeWrittenIsSaidOnce) {
  testing::internal::CaptureStderr();
  std::ofstream(folder / "file") << "no folder";
  open_log_file(folder / "file" / "rank-00000.jsonl");
  log_info("one");
  log_info("two");
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t first = said.find("cannot be opened");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("cannot be opened", first + 1), std::string::npos) << said;
  EXPECT_NE(said.find("two"), std::string::npos);
}

TEST_F(LogFile, GoesToTheTerminalAsJsonOnRequest) {
  testing::internal::CaptureStderr();
  set_log_json(true);
  set_log_step(7);
  log_info("hello");
  log_debug("not asked for");
  const Json line = Json::parse(testing::internal::GetCapturedStderr());
  EXPECT_EQ(line["message"], "hello");
  EXPECT_EQ(line["step"], 7);
}

std::string line_at(const char* time, int rank, const char* message) {
  return Json{{"time", time},      {"host", "n1"},    {"rank", rank},
              {"step", rank * 10}, {"level", "info"}, {"message", message}}
             .dump() +
         "\n";
}

TEST_F(LogFile, OfRanksAreMergedByTime) {
  std::ofstream(folder / "rank-00000.jsonl") << line_at("2026-11-17T10:00:01.000000Z", 0, "b")
                                             << line_at("2026-11-17T10:00:05.000000Z", 0, "f");
  std::ofstream(folder / "rank-00001.jsonl.1") << line_at("2026-11-17T10:00:00.000000Z", 1, "a")
                                               << line_at("2026-11-17T10:00:02.000000Z", 1, "c");
  std::ofstream(folder / "rank-00001.jsonl")
      << line_at("2026-11-17T10:00:03.000000Z", 1, "d") << "{\"time\": \"2026-11-1";  // a crash
  // A clock that was set back: its line comes, in its rank's order.
  std::ofstream(folder / "rank-00002.jsonl") << line_at("2026-11-17T10:00:04.000000Z", 2, "e")
                                             << line_at("2026-11-17T09:00:00.000000Z", 2, "e2");
  std::ofstream(folder / "other.jsonl") << line_at("2026-11-17T10:00:03.000000Z", 9, "z");
  std::string order;
  LogEntry first;
  const auto result = merge_logs(folder, [&](const LogEntry& entry) {
    if (order.empty()) first = entry;
    order += entry.message + " ";
  });
  EXPECT_EQ(order, "a b c d e e2 f ");
  EXPECT_EQ(result.unreadable, 1u);
  EXPECT_EQ(result.lines, 7u);
  EXPECT_EQ(text_of(first), "2026-11-17 10:00:00.000 n1 rank 1 step 10 info: a");
}

TEST_F(LogFile, ThatAreRotatedMeanwhileAreReadToTheirEnd) {
  const fs::path path = folder / log_file_name(0);
  const auto named = [&](int number) { return fs::path(str(path.string(), ".", number)); };
  constexpr int kLines = 500;  // more than a piece
  for (int i = 0; i < 2 * kLines; ++i)
    std::ofstream(i < kLines ? named(1) : path, std::ios::app)
        << line_at("2026-11-17T10:00:01.000000Z", 0, str(i).c_str());
  int next = 0;
  const auto result = merge_logs(folder, [&](const LogEntry& entry) {
    EXPECT_EQ(entry.message, str(next++));
    if (next != 10 && next != kLines + 10) return;
    for (int i = 2; i >= 1; --i)
      if (fs::exists(named(i))) fs::rename(named(i), named(i + 1));
    fs::rename(path, named(1));
    for (int i = 0; i < 300; ++i)
      std::ofstream(path, std::ios::app) << line_at("2026-11-17T10:00:02.000000Z", 0, "later");
  });
  EXPECT_EQ(next, 2 * kLines);
  EXPECT_EQ(result.files, 2);
  EXPECT_EQ(result.unreadable, 0u);
}

TEST_F(LogFile, OfLaunchersAreMergedToo) {
  testing::internal::CaptureStderr();
  open_log_file(folder / "earlier.jsonl");  // takes what other tests have said
  close_log_file();
  set_log_launcher(3);
  log_warn("rank 7 is lost");
  const fs::path path = folder / launcher_log_file_name(3);
  EXPECT_EQ(path.filename(), "launcher-00003.jsonl");
  open_log_file(path);
  close_log_file();
  log_info("kept for the next time");
  open_log_file(path);
  close_log_file();
  set_log_launcher(-1);
  testing::internal::GetCapturedStderr();
  std::ofstream(folder / "rank-00007.jsonl") << line_at("2020-11-17T10:00:01.000000Z", 7, "last");
  std::vector<std::string> said;
  merge_logs(folder, [&](const LogEntry& entry) {
    EXPECT_EQ(entry.rank, said.empty() ? 7 : -1);
    said.push_back(text_of(entry));
  });
  ASSERT_EQ(said.size(), 3u);
  EXPECT_NE(said[1].find(" launcher of node 3 warning: rank 7 is lost"), std::string::npos);
  EXPECT_TRUE(said[2].ends_with(" launcher of node 3 info: kept for the next time")) << said[2];
  EXPECT_EQ(ranks_with_logs(folder), std::vector<int64_t>{7});
}

TEST_F(LogFile, OfUntrustedOriginCannotHarm) {
  std::ofstream(folder / "rank-00000.jsonl")
      << "[1, 2]\nnull\n{}\n"
      << std::string(3 << 20, 'a') << "\n"
      << R"({"time": 5, "host": "h", "rank": 0, "step": 0, "level": "info", "message": "m"})"
      << "\n"
      << Json{{"time", "t\x1b[2J"}, {"host", "h"},     {"rank", 0},
              {"step", 1},          {"level", "info"}, {"message", "\x1b]0;x\x07"}}
             .dump()
      << "\n";
  int taken = 0;
  const auto result = merge_logs(folder, [&](const LogEntry& entry) {
    ++taken;
    EXPECT_EQ(text_of(entry).find('\x1b'), std::string::npos);
  });
  EXPECT_EQ(taken, 1);
  EXPECT_GE(result.unreadable, 5u);
}

}  // namespace
}  // namespace octavo

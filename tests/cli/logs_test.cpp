#include "base/error.h"
#include "base/json.h"
#include "program.h"

namespace octavo {
namespace {

class LogsCli : public Cli {
 protected:
  void write_log(int rank, const std::string& lines) {
    fs::create_directories(folder_ / "runs/one/logs");
    write_file_atomic(folder_ / str("runs/one/logs/rank-0000", rank, ".jsonl"), lines);
  }
  static std::string line(const char* second, int rank, const char* level, const char* message) {
    return Json{{"time", str("2026-11-17T10:00:", second, ".250000Z")},
                {"host", str("n", rank)},
                {"rank", rank},
                {"step", 7},
                {"level", level},
                {"message", message}}
               .dump() +
           "\n";
  }
};

TEST_F(LogsCli, MergesRanksByTime) {
  write_log(0, line("01", 0, "info", "begins") + line("04", 0, "error", "ends"));
  write_log(1, line("02", 1, "warning", "is slow") + "{\"cut");
  const Outcome all = run("logs one");
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(all.out,
            "2026-11-17 10:00:01.250 n0 rank 0 step 7 info: begins\n"
            "2026-11-17 10:00:02.250 n1 rank 1 step 7 warning: is slow\n"
            "2026-11-17 10:00:04.250 n0 rank 0 step 7 error: ends\n");
  EXPECT_NE(all.err.find("1 lines"), std::string::npos) << all.err;
  EXPECT_EQ(run("logs runs/one --level warning --rank 1").out,
            "2026-11-17 10:00:02.250 n1 rank 1 step 7 warning: is slow\n");
  EXPECT_EQ(Json::parse(run("logs one --rank=1 --json_lines").out)["message"], "is slow");
}

TEST_F(LogsCli, HasTheLaunchersLines) {
  write_log(0, line("01", 0, "info", "begins") + line("04", 0, "error", "ends"));
  const Json said = {{"time", "2026-11-17T10:00:05.250000Z"},
                     {"host", "n0"},
                     {"launcher", 0},
                     {"level", "warning"},
                     {"message", "restart 1 of 3"}};
  write_file_atomic(folder_ / "runs/one/logs/launcher-00000.jsonl", said.dump() + "\n");
  EXPECT_EQ(run("logs one --level warning").out,
            "2026-11-17 10:00:04.250 n0 rank 0 step 7 error: ends\n"
            "2026-11-17 10:00:05.250 n0 launcher of node 0 warning: restart 1 of 3\n");
  EXPECT_EQ(run("logs one --rank 0 --level warning").out,
            "2026-11-17 10:00:04.250 n0 rank 0 step 7 error: ends\n");
  const std::string json = run("logs one --json_lines --level warning").out;
  EXPECT_EQ(Json::parse(json.substr(json.find('\n'))), said);
}

TEST_F(LogsCli, SaysWhatIsMissing) {
  for (const char* arguments : {"logs", "logs nothing", "logs a b", "logs one --rank x",
                                "logs one --level loud", "logs one --board_port 5"})
    EXPECT_EQ(run(arguments).code, 2) << arguments;
  EXPECT_NE(run("logs nothing").err.find("nothing/logs"), std::string::npos);
}

TEST_F(LogsCli, RefusesARankThatIsNotThere) {
  write_log(0, line("01", 0, "info", "begins"));
  expect_refused("logs one --rank 7", 2, "found 7; there is rank 0");
  write_log(1, "");  // a rank that has said nothing yet
  write_log(4, line("02", 4, "info", "begins"));
  EXPECT_EQ(run("logs one --rank 1").code, 0);
  expect_refused("logs one --rank 7", 2, "found 7; there are ranks 0-1, 4");
  EXPECT_EQ(run("logs one --rank 4 --level error").code, 0);
  for (int rank = 6; rank < 50; rank += 2) write_log(rank, "");
  expect_refused("logs one --rank 7", 2, "30, 32, …");
}

}  // namespace
}  // namespace octavo

#pragma once
// The program itself, run in a folder of the test's own.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/file.h"

namespace octavo {

struct Outcome {
  int code = -1;
  std::string out, err;
};

class Cli : public testing::Test {
 protected:
  Cli() : folder_(fs::path(testing::TempDir()) / ("octavo_cli_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Cli() override { fs::remove_all(folder_); }

  // `arguments` are shell words; runs inside the test's own folder.
  Outcome run(const std::string& arguments, const std::string& program = OCTAVO_PROGRAM) {
    const std::string command =
        "cd '" + folder_.string() + "' && '" + program + "' " + arguments + " >out 2>err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out", 1 << 20),
            read_file(folder_ / "err", 1 << 20)};
  }

  void expect_refused(const std::string& arguments, int code, const std::string& part) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_TRUE(outcome.err.starts_with("octavo: [")) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << arguments << ": " << outcome.err;
  }

  fs::path folder_;
};

}  // namespace octavo

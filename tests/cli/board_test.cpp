#include "program.h"

namespace octavo {
namespace {

class BoardCli : public Cli {
 protected:
  // A program that says what it was started with.
  void install_tensorboard() {
    fs::create_directories(folder_ / "bin");
    write_file_atomic(folder_ / "bin/tensorboard", "#!/bin/sh\necho \"$@\"\nexit 7\n");
    fs::permissions(folder_ / "bin/tensorboard", fs::perms::owner_all);
  }
  void make_events(const std::string& runs) {
    fs::create_directories(folder_ / runs / "one/tensorboard");
    write_file_atomic(folder_ / runs / "one/tensorboard/events.out.tfevents.1.octavo", "x");
  }
  Outcome board(const std::string& arguments) {
    ::setenv("PATH", ((folder_ / "bin").string() + ":/usr/bin:/bin").c_str(), 1);
    return run("board " + arguments);
  }
  void SetUp() override { path_ = ::getenv("PATH"); }
  void TearDown() override { ::setenv("PATH", path_.c_str(), 1); }
  std::string path_;
};

TEST_F(BoardCli, StartsTheInstalledTensorBoardOnLoopback) {
  install_tensorboard();
  make_events("runs");
  const Outcome usual = board("");
  EXPECT_EQ(usual.out, "--logdir runs --host 127.0.0.1 --port 6006\n") << usual.err;
  EXPECT_EQ(usual.code, 7) << "it is TensorBoard's own from then on";
  EXPECT_NE(usual.err.find("http://127.0.0.1:6006/"), std::string::npos) << usual.err;
  make_events("other runs");
  EXPECT_EQ(board("'other runs' --board_port 7007").out,
            "--logdir other runs --host 127.0.0.1 --port 7007\n");
}

TEST_F(BoardCli, SaysWhatIsMissing) {
  const Outcome nowhere = board("");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_NE(nowhere.err.find("octavo board FOLDER"), std::string::npos) << nowhere.err;
  fs::create_directories(folder_ / "runs/one");
  const Outcome empty = board("");
  EXPECT_EQ(empty.code, 2);
  EXPECT_NE(empty.err.find("--use_tensorboard"), std::string::npos) << empty.err;
  make_events("runs");
  const Outcome missing = board("");
  EXPECT_EQ(missing.code, 3) << missing.out;
  EXPECT_NE(missing.err.find("pip install tensorboard"), std::string::npos) << missing.err;
}

}  // namespace
}  // namespace octavo

// Nothing of another run is touched: which folders a run may write into, and what is said when it
// may not.

#include "train/state/run_folders.h"

#include <stdlib.h>

#include "base/json.h"
#include "expect_failure.h"
#include "launch/restart.h"
#include "train/loop.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class RunFoldersTest : public TrainTest {
 protected:
  config::Settings settings(const std::string& name) const {
    config::Settings s = TrainTest::settings();
    s.run_name = name;
    s.runs_dir = (folder / "runs").string();
    s.checkpoint_dir = (folder / "checkpoints").string();
    s.n_embd = 16;
    s.max_steps = 4;
    s.checkpoint_freq = 2;
    s.eval_freq = 2;
    s.eval_batches = 1;
    s.num_threads = 1;
    return s;
  }
  // Every file below the folder, with its content.
  std::map<std::string, std::string> files(const std::string& below) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder / below))
      if (entry.is_symlink())
        found[entry.path().string()] = fs::read_symlink(entry.path()).string();
      else if (entry.is_regular_file())
        found[entry.path().string()] = hash_file(entry.path());
    return found;
  }
  void refuses(const config::Settings& s, const std::vector<std::string>& words) const {
    const auto runs = files("runs"), saved = files("checkpoints");
    std::string message;
    try {
      train(s);
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.code(), ExitCode::kUsage);
    }
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
    EXPECT_EQ(files("runs"), runs);
    EXPECT_EQ(files("checkpoints"), saved);
  }
};

TEST_F(RunFoldersTest, ARunKeepsItsCheckpointsApart) {
  auto first = settings("first"), second = settings("second");
  EXPECT_EQ(train(first), 0);
  const auto before = files("checkpoints/first");
  second.n_embd = 32;
  second.keep_checkpoints = 1;
  second.max_steps = 8;
  EXPECT_EQ(train(second), 0);
  EXPECT_EQ(files("checkpoints/first"), before);
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints/latest"), "second/latest");
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints/second/latest"), "step-00000008");
}

TEST_F(RunFoldersTest, AFinishedRunIsNotWrittenOver) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  refuses(s, {"finished run of 4 steps", "--resume latest", "--run_name OTHER", "--overwrite"});
  s.n_embd = 32;  // whatever it is
  refuses(s, {"--overwrite"});
  fs::remove_all(folder / "checkpoints/run");
  refuses(s, {"finished run of 4 steps", "--overwrite"});
  fs::remove_all(folder / "runs/run");
  EXPECT_EQ(train(s), 0);
  fs::remove_all(folder / "runs/run");
  refuses(s, {"checkpoints up to step-00000004", "--resume latest", "--overwrite"});
}

TEST_F(RunFoldersTest, OverwriteReplacesTheRunAndLeavesTheRest) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  write_file_atomic(folder / "runs/run/notes.txt", "mine");
  s.overwrite = true;
  s.max_steps = 2;
  EXPECT_EQ(train(s), 0);
  EXPECT_FALSE(fs::exists(folder / "checkpoints/run/step-00000004"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/run/step-00000002"));
  EXPECT_TRUE(fs::exists(folder / "runs/run/notes.txt"));
  EXPECT_EQ(read_json(folder / "runs/run/receipt.json").at("steps"), 2);
  // With resume it continues, and nothing is removed.
  s.resume = "latest";
  s.max_steps = 4;
  EXPECT_EQ(train(s), 0);
  EXPECT_TRUE(fs::exists(folder / "checkpoints/run/step-00000002"));
  EXPECT_TRUE(fs::exists(folder / "checkpoints/run/step-00000004"));
}

TEST_F(RunFoldersTest, AnUnfinishedRunBeginsAnewOnlyWhenItIsStartedAgain) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  fs::remove_all(folder / "checkpoints/run");  // as if it had been killed before its first save
  Json receipt = read_json(folder / "runs/run/receipt.json");
  receipt["status"] = "running";
  write_file_atomic(folder / "runs/run/receipt.json", receipt.dump());
  refuses(s, {"an unfinished run of 4 steps", "--run_name OTHER", "--overwrite"});
  ::setenv(launch::kBeginsAnewVariable, "1", 1);
  EXPECT_EQ(train(s), 0);
  refuses(s, {"a finished run"});  // that is never a restart
  ::unsetenv(launch::kBeginsAnewVariable);
}

TEST_F(RunFoldersTest, GoingOnUnderAnotherNameLeavesTheFirstAlone) {
  auto s = settings("first");
  EXPECT_EQ(train(s), 0);
  EXPECT_EQ(train(settings("third")), 0);
  const auto runs = files("runs/first"), saved = files("checkpoints/first");
  s.run_name = "second";
  s.max_steps = 6;
  s.resume = "latest";  // of `second`, which has none
  refuses(s, {"wanted a checkpoint of run \"second\"", "run first"});
  s.resume = "first";
  EXPECT_EQ(train(s), 0);
  EXPECT_EQ(files("runs/first"), runs);
  EXPECT_EQ(files("checkpoints/first"), saved);
  // Its best is its own, although the first run's may be better.
  EXPECT_TRUE(fs::is_symlink(folder / "checkpoints/second/best_model"));
  s.run_name = "third";
  refuses(s, {"(run first) as run third", "--run_name OTHER", "--overwrite"});
}

TEST_F(RunFoldersTest, AnotherModelDataOrTokenizerIsRefused) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  s.resume = "latest";
  s.max_steps = 6;
  auto other = s;
  other.n_embd = 32;
  refuses(other, {"n_embd", "--run_name OTHER"});
  write_file_atomic(folder / "other.txt", std::string(4000, 'x') + "\n");
  other = s;
  other.dataset = {(folder / "other.txt").string()};
  refuses(other, {"other data", "--run_name OTHER"});
  EXPECT_EQ(train(s), 0);
}

TEST_F(RunFoldersTest, AHistoryOfAnotherRunOfTheSameNameIsRefused) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  fs::rename(folder / "checkpoints/run", folder / "kept");
  s.overwrite = true;
  EXPECT_EQ(train(s), 0);
  s.overwrite = false;
  s.max_steps = 6;
  s.resume = (folder / "kept/step-00000004").string();
  refuses(s, {"another run of the same name", "--run_name OTHER"});
  s.run_name = "branch";
  EXPECT_EQ(train(s), 0);
}

TEST_F(RunFoldersTest, FoldersThatWereRenamedGoOnUnderTheirNewName) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  fs::rename(folder / "checkpoints/run", folder / "checkpoints/new");
  fs::rename(folder / "runs/run", folder / "runs/new");
  s.run_name = "new";
  s.resume = "latest";
  s.max_steps = 8;
  s.keep_checkpoints = 1;
  EXPECT_EQ(train(s), 0);
  EXPECT_FALSE(fs::exists(folder / "checkpoints/new/step-00000002"));
}

TEST_F(RunFoldersTest, ACheckpointFromBeforeRunsHadFoldersGoesOnInOne) {
  auto s = settings("run");
  EXPECT_EQ(train(s), 0);
  for (const char* name : {"step-00000002", "step-00000004", "latest", "best_model"})
    if (name != std::string_view("latest"))
      fs::rename(folder / "checkpoints/run" / name, folder / "checkpoints" / name);
  fs::remove(folder / "checkpoints/latest");
  fs::rename(folder / "checkpoints/run/latest", folder / "checkpoints/latest");
  fs::remove(folder / "checkpoints/run");
  const auto before = files("checkpoints/step-00000004");
  for (const bool named : {true, false}) {
    auto again = s;
    if (!named) again.run_name.clear();
    again.resume = "latest";
    again.max_steps = named ? 6 : 8;
    again.keep_checkpoints = 1;
    EXPECT_EQ(train(again), 0);
    EXPECT_TRUE(
        fs::exists(folder / "checkpoints/run" / (named ? "step-00000006" : "step-00000008")));
  }
  EXPECT_EQ(files("checkpoints/step-00000004"), before);
  EXPECT_TRUE(fs::exists(folder / "checkpoints/step-00000002"));
}

TEST_F(RunFoldersTest, EveryOutputFolderIsTriedBeforeStepOne) {
  auto s = settings("run");
  s.checkpoint_dir = "/proc/x";
  expect_failure(ExitCode::kEnvironment, "checkpoint_dir: wanted a folder that can be written to",
                 [&] { train(s); });
  s = settings("run");
  s.runs_dir = (folder / "text.txt/r").string();
  expect_failure(ExitCode::kEnvironment, "runs_dir: wanted a folder", [&] { train(s); });
  s = settings("run");
  s.trace = (folder / "text.txt/trace.json").string();
  expect_failure(ExitCode::kEnvironment, "trace", [&] { train(s); });
  // Nothing is left of runs that were not begun.
  s = settings("run");
  s.dataset = {(folder / "none.txt").string()};
  EXPECT_THROW(train(s), Error);
  for (const char* name : {"runs", "checkpoints"}) EXPECT_FALSE(fs::exists(folder / name)) << name;
}

TEST_F(RunFoldersTest, TwoProcessesDoNotTrainInOneFolder) {
  auto s = settings("run");
  const auto first = assemble(s, /*writes=*/true);
  expect_failure(ExitCode::kEnvironment, "another process trains in it", [&] { train(s); });
}

}  // namespace
}  // namespace octavo::train

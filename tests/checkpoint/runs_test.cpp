// Several runs below one checkpoint_dir, and checkpoints from before each had its own folder.

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

State state_of(const std::string& run, int64_t step, const std::string& id = "") {
  State state = sample_state(step, static_cast<double>(step));
  state.extra["run_name"] = run;
  if (!id.empty()) state.extra["run_id"] = id;
  return state;
}

void save_of(const fs::path& root, const std::string& run, int64_t step, SaveOptions options = {}) {
  options.newest_run = true;
  save(root / run, state_of(run, step), options);
}

std::string resolved(const fs::path& root, const std::string& what, const std::string& run = "") {
  return fs::canonical(resolve(root, what, run)).lexically_relative(fs::canonical(root)).string();
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const Summary& summary : list(folder)) steps.push_back(summary.step);
  return steps;
}

TEST(Runs, RetentionAndLinksAreOfOneRun) {
  Scratch root;
  for (const int step : {50, 100, 150}) save_of(root.path(), "a", step, {.best = step == 100});
  for (const int step : {40, 80, 120, 160})
    save_of(root.path(), "b", step, {.best = step == 40, .keep = 2});
  EXPECT_EQ(steps_in(root / "a"), (std::vector<int64_t>{50, 100, 150}));
  EXPECT_EQ(steps_in(root / "b"), (std::vector<int64_t>{40, 120, 160}));
  EXPECT_EQ(fs::read_symlink(root / "latest"), "b/latest");
  EXPECT_EQ(fs::read_symlink(root / "a/latest"), "step-00000150");
  EXPECT_EQ(fs::read_symlink(root / "a/best_model"), "step-00000100");
  EXPECT_EQ(fs::read_symlink(root / "b/best_model"), "step-00000040");
  EXPECT_FALSE(fs::exists(fs::symlink_status(root / "best_model")));
}

TEST(Runs, EveryNameFindsItsCheckpoint) {
  Scratch root;
  save_of(root.path(), "a", 50, {.best = true});
  save_of(root.path(), "a", 100);
  save_of(root.path(), "b", 40, {.best = true});
  save_of(root.path(), "b", 50);
  const auto at = [&](const std::string& what, const std::string& run = "") {
    return resolved(root.path(), what, run);
  };
  EXPECT_EQ(at("latest"), "b/step-00000050");
  EXPECT_EQ(at("best"), "b/step-00000040");
  EXPECT_EQ(at("latest", "a"), "a/step-00000100");
  EXPECT_EQ(at("best", "a"), "a/step-00000050");
  EXPECT_EQ(at("a"), "a/step-00000100");
  EXPECT_EQ(at("a", "b"), "a/step-00000100");
  EXPECT_EQ(at("step-00000100"), "a/step-00000100");
  EXPECT_EQ(at("step-00000050", "b"), "b/step-00000050");
  EXPECT_EQ(at("a/step-00000050"), "a/step-00000050");
  EXPECT_EQ(at("a/best_model"), "a/step-00000050");
  EXPECT_EQ(at((root / "a").string()), "a/step-00000100");
  EXPECT_EQ(at((root / "latest").string()), "b/step-00000050");
  EXPECT_EQ(at((root / "a/step-00000050").string()), "a/step-00000050");

  const auto refused = [&](const std::string& what, const std::string& run = "") {
    return error_of(ExitCode::kUsage, [&] { resolve(root.path(), what, run); });
  };
  EXPECT_TRUE(has(refused("step-00000050"), "a/step-00000050"));  // both have one
  EXPECT_TRUE(has(refused("latest", "c"), "run a, run b"));
  EXPECT_TRUE(has(refused("c"), "run a, run b"));
  // What can be typed: only training has --resume.
  for (const char* what : {"latest", "best"}) {
    const std::string reads = refused(what, "c");
    EXPECT_TRUE(has(reads, "(--checkpoint NAME takes that one); set checkpoint_dir")) << reads;
    EXPECT_FALSE(has(reads, "resume")) << reads;
    const std::string resumes =
        error_of(ExitCode::kUsage, [&] { owner_of(root.path(), what, "c"); });
    EXPECT_TRUE(has(resumes, "(--resume NAME takes that one); start without resume")) << resumes;
  }
  EXPECT_TRUE(has(refused(root.path().string()), "a folder of runs"));
}

TEST(Runs, AMistypedNameIsAnsweredWithTheNearestOne) {
  Scratch root;
  save_of(root.path(), "pretrain-1", 50);
  const auto said = [&](const std::string& what) {
    return error_of(ExitCode::kUsage, [&] { resolve(root.path(), what); });
  };
  EXPECT_TRUE(has(said("lastest"), "did you mean latest?")) << said("lastest");
  EXPECT_TRUE(has(said("bst"), "did you mean best?"));
  EXPECT_TRUE(has(said("pretain-1"), "did you mean pretrain-1?"));
  for (const char* far : {"step-00000051", "somewhere/else/quite", "latest.pt"})
    EXPECT_FALSE(has(said(far), "did you mean")) << said(far);
}

TEST(Runs, CheckpointsFromBeforeRunsHadFolders) {
  Scratch root;
  for (const int step : {10, 20}) save(root.path(), state_of("old", step), {.best = step == 10});
  EXPECT_EQ(resolved(root.path(), "latest"), "step-00000020");
  save(root.path(), state_of("older", 30), {});  // into the same folder, as it was
  EXPECT_EQ(resolved(root.path(), "latest"), "step-00000030");
  save_of(root.path(), "new", 5);
  EXPECT_EQ(resolved(root.path(), "latest"), "new/step-00000005");
  EXPECT_EQ(resolved(root.path(), "latest", "old"), "step-00000020");
  EXPECT_EQ(resolved(root.path(), "old"), "step-00000020");
  EXPECT_EQ(resolved(root.path(), "latest", "older"), "step-00000030");
  EXPECT_EQ(resolved(root.path(), "best", "old"), "step-00000010");
  EXPECT_TRUE(has(error_of(ExitCode::kUsage, [&] { resolve(root.path(), "best", "older"); }),
                  "best_model is run \"old\"'s"));
  EXPECT_EQ(resolved(root.path(), "step-00000010"), "step-00000010");
  EXPECT_EQ(resolved(root.path(), (root / "step-00000010").string()), "step-00000010");
  EXPECT_EQ(owner_of(root.path(), "step-00000030", "").run, "older");
  EXPECT_EQ(run_folders(root.path()), (std::vector<fs::path>{root.path(), root / "new"}));
}

TEST(Runs, AFallbackStaysWithItsRun) {
  Scratch root;
  save(root.path(), state_of("other", 10), {});
  save(root.path(), state_of("mine", 20), {});
  save(root.path(), state_of("mine", 30), {});
  fs::resize_file(root / "step-00000030/model.safetensors", 9);
  EXPECT_EQ(resolved(root.path(), "latest"), "step-00000020");
  fs::resize_file(root / "step-00000020/model.safetensors", 9);
  EXPECT_TRUE(has(error_of(ExitCode::kDamaged, [&] { resolve(root.path(), "latest"); }),
                  "only damaged ones"));
}

TEST(Runs, WhatAnotherRunSavedIntoAFolderIsNotRemoved) {
  Scratch root;
  save(root / "x", state_of("x", 10, "first"), {});
  for (const int step : {20, 30, 40}) save(root / "x", state_of("x", step, "second"), {.keep = 1});
  EXPECT_EQ(steps_in(root / "x"), (std::vector<int64_t>{10, 40}));
  save(root / "y", state_of("y", 10), {});
  for (const int step : {20, 30}) save(root / "y", state_of("z", step), {.keep = 1});
  EXPECT_EQ(steps_in(root / "y"), (std::vector<int64_t>{10, 30}));
}

TEST(Runs, ALinkThatNamesNoRun) {
  Scratch root;
  save_of(root.path(), "a", 50);
  save_of(root.path(), "b", 40);
  for (const char* target : {"gone/latest", "../etc/latest", "/etc/latest", "a/b/latest", "a"}) {
    fs::remove(root / "latest");
    fs::create_symlink(target, root / "latest");
    const int64_t before = warning_count();
    EXPECT_EQ(resolved(root.path(), "latest"), "b/step-00000040") << target;
    EXPECT_GT(warning_count(), before);
  }
  fs::remove(root / "latest");
  fs::create_directory(root / "latest");  // the user's: the save continues, with a warning
  const int64_t before = warning_count();
  save_of(root.path(), "a", 60);
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_EQ(resolved(root.path(), "a"), "a/step-00000060");
}

TEST(Runs, RemovingTheCheckpointsOfARunAndNothingElse) {
  Scratch root;
  for (const int step : {10, 20}) save_of(root.path(), "a", step, {.best = true});
  save_of(root.path(), "b", 10);
  write_text(root / "a/notes.txt", "mine");
  fs::create_directory(root / "a/.tmp-step-00000030-99");
  remove_checkpoints(root / "a");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root / "a"))
    names.push_back(entry.path().filename().string());
  EXPECT_EQ(names, std::vector<std::string>{"notes.txt"});
  EXPECT_EQ(resolved(root.path(), "b"), "b/step-00000010");
  remove_checkpoints(root / "missing");
}

}  // namespace
}  // namespace octavo::checkpoint

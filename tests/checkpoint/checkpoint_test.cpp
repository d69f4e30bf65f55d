#include "checkpoint/checkpoint.h"

#include <limits>

#include "base/log.h"
#include "checkpoint/folders.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int64_t> steps_of(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const Summary& summary : list(folder)) steps.push_back(summary.step);
  return steps;
}

TEST(Checkpoint, RoundTrip) {
  Scratch folder;
  State saved = sample_state(250, 3.25);
  fs::path path = save(folder / "runs/x", saved, {.best = true});
  EXPECT_EQ(path.filename(), "step-00000250");
  EXPECT_EQ(names_in(folder / "runs/x"),
            (std::vector<std::string>{"best_model", "latest", "step-00000250"}));
  EXPECT_EQ(fs::read_symlink(folder / "runs/x/latest"), "step-00000250");

  State loaded = load(path);
  EXPECT_EQ(loaded.step, 250);
  EXPECT_EQ(loaded.tokens, 256000u);
  EXPECT_EQ(loaded.precision, "FP8");
  EXPECT_EQ(loaded.recipe, "delayed");
  EXPECT_TRUE(loaded.has_val_loss);
  EXPECT_EQ(loaded.val_loss, saved.val_loss);
  EXPECT_EQ(loaded.extra, saved.extra);
  EXPECT_EQ(loaded.groups.size(), 2);
  EXPECT_EQ(mixture(loaded), "");
  EXPECT_TRUE(verify(path).empty());

  auto rows = list(folder / "runs/x");
  ASSERT_EQ(rows.size(), 1);
  EXPECT_TRUE(rows[0].is_latest && rows[0].is_best);
  EXPECT_EQ(rows[0].created.size(), std::string("2025-01-01T00:00:00.000Z").size());
  EXPECT_EQ(rows[0].val_loss, saved.val_loss);
  EXPECT_EQ(rows[0].bytes, fs::file_size(path / "model.safetensors") +
                               fs::file_size(path / "optimizer.safetensors"));
}

TEST(Checkpoint, NoValidationLossAndOneThatIsNotFinite) {
  Scratch folder;
  State state = sample_state(1, 1);
  state.has_val_loss = false;
  EXPECT_FALSE(load(save(folder.path(), state, {})).has_val_loss);
  state.has_val_loss = true;
  state.val_loss = std::numeric_limits<double>::quiet_NaN();
  int64_t before = warning_count();
  EXPECT_FALSE(load(save(folder.path(), state, {})).has_val_loss);
  EXPECT_EQ(warning_count(), before + 1);
}

TEST(Checkpoint, SaveRefusesWhatCouldNotBeLoaded) {
  Scratch folder;
  auto refused = [&](const State& state, ExitCode code, const char* wanted) {
    std::string message = error_of(code, [&] { save(folder / "c", state, {}); });
    EXPECT_TRUE(has(message, wanted)) << message;
    EXPECT_TRUE(!fs::exists(folder / "c") || names_in(folder / "c").empty());
  };
  State state = sample_state(-1, 1);
  refused(state, ExitCode::kUsage, "step");
  state = sample_state(1, 1);
  state.groups["../model"] = {};
  refused(state, ExitCode::kUsage, "group name");
  state = sample_state(1, 1);
  state.extra["bad"] = std::numeric_limits<double>::infinity();
  refused(state, ExitCode::kUsage, "not finite");
  state.extra["bad"] = "\xff";
  refused(state, ExitCode::kUsage, "UTF-8");
  state = sample_state(1, 1);
  state.groups["model"].emplace_back("undefined", at::Tensor());
  refused(state, ExitCode::kUsage, "undefined");
  state = sample_state(1, 1);  // 4 PiB, of which only one element exists
  state.groups["model"].emplace_back("huge", at::ones({1}).expand({int64_t{1} << 50}));
  refused(state, ExitCode::kEnvironment, "free in");
}

TEST(Checkpoint, SameStepAgainReplaces) {
  Scratch folder;
  for (double mark : {1, 2, 3}) {
    save(folder.path(), sample_state(7, mark), {});
    EXPECT_EQ(load(resolve(folder.path(), "latest")).extra.at("mark"), mark);
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"latest", "step-00000007"}));
  }
}

// Where RENAME_EXCHANGE is missing.
TEST(Checkpoint, ReplacingByMovingAside) {
  Scratch folder;
  fs::path path = save(folder.path(), sample_state(7, 1), {});
  save(folder / "other", sample_state(7, 2), {});
  install_folder(folder / "other/step-00000007", path, /*allow_exchange=*/false);
  EXPECT_EQ(load(resolve(folder.path(), "latest")).extra.at("mark"), 2);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"latest", "other", "step-00000007"}));
}

TEST(Checkpoint, KilledBetweenTheTwoRenamesOfAReplacement) {
  Scratch folder;
  fs::path path = save(folder.path(), sample_state(7, 1), {.best = true});
  fs::rename(path, folder / ".old-step-00000007-123");
  for (const char* what : {"latest", "best", "step-00000007"})
    EXPECT_EQ(mixture(load(resolve(folder.path(), what))), "") << what;
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{7}));
  save(folder.path(), sample_state(8, 2), {});
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"best_model", "latest", "step-00000007", "step-00000008"}));
  EXPECT_TRUE(verify(path).empty());
}

TEST(Checkpoint, LeftoversAreCleanedAndForeignFilesAreNot) {
  Scratch folder;
  for (const char* name : {".tmp-step-00000001-99", ".del-step-00000001-99", ".tmp-notes", "notes"})
    fs::create_directories(folder / name / "inner");
  fs::create_symlink("step-00000001", folder / ".link-latest-99");
  save(folder.path(), sample_state(2, 1), {});
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{".tmp-notes", "latest", "notes", "step-00000002"}));
}

TEST(Checkpoint, RetentionKeepsNewestAndLinkTargets) {
  Scratch folder;
  save(folder.path(), sample_state(1, 1), {.keep = 2});
  save(folder.path(), sample_state(2, 1), {.best = true, .keep = 2});
  for (int step : {3, 4, 5}) save(folder.path(), sample_state(step, 1), {.keep = 2});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ(resolve(folder.path(), "best").filename(), "step-00000002");
  // Back to an older step: those saved last are kept, not those with the highest numbers.
  save(folder.path(), sample_state(3, 2), {.keep = 2});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 3, 5}));
  save(folder.path(), sample_state(4, 2), {.keep = 2});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 3, 4}));
  save(folder.path(), sample_state(6, 2), {});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 3, 4, 6}));
  error_of(ExitCode::kUsage, [&] { save(folder.path(), sample_state(9, 1), {.keep = -1}); });
}

TEST(Checkpoint, PermanentOnesStay) {
  Scratch folder;
  for (int step = 1; step <= 7; ++step)
    save(folder.path(), sample_state(step, 1), {.keep = 2, .permanent_every = 3});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{3, 6, 7}));
  save(folder.path(), sample_state(8, 1), {.keep = 1, .permanent_every = 3});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{3, 6, 8}));
}

TEST(Checkpoint, WhatCannotBeRemovedFailsNoSave) {
  Scratch folder;
  const SaveOptions options{.keep = 1, .in_use = [](const fs::path&) -> bool {
                              fail(ExitCode::kEnvironment, "test", "no answer");
                            }};
  const int64_t before = warning_count();
  for (int step = 1; step <= 2; ++step) save(folder.path(), sample_state(step, 1), options);
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-00000002");
}

// One that was due at a step that could not be saved.
TEST(Checkpoint, OneThatIsMarkedPermanentStaysWhateverItsStep) {
  Scratch folder;
  for (int step = 1; step <= 5; ++step)
    save(folder.path(), sample_state(step, 1), {.permanent = step == 2, .keep = 1});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 5}));
  const auto rows = list(folder.path());
  EXPECT_TRUE(rows[0].is_permanent);
  EXPECT_FALSE(rows[1].is_permanent);
}

TEST(Checkpoint, RetentionDoesNotCountBrokenOnes) {
  Scratch folder;
  for (int step : {1, 2, 3}) save(folder.path(), sample_state(step, 1), {});
  fs::resize_file(folder / "step-00000003/model.safetensors", 10);
  save(folder.path(), sample_state(4, 1), {.keep = 2});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{2, 3, 4}));
}

void flip(const fs::path& path, size_t at, int bit = 0) {
  std::string content = read_text(path);
  content[at] ^= static_cast<char>(1 << bit);
  write_text(path, content);
}

TEST(Checkpoint, RetentionOfOneReadsTheNewestBackFirst) {
  Scratch folder;
  save(folder.path(), sample_state(1, 1), {});
  const auto damage = [&](std::string_view stage) {
    const fs::path file = folder / "step-00000002/model.safetensors";
    if (stage == "latest") flip(file, fs::file_size(file) - 1);
  };
  save(folder.path(), sample_state(2, 2), {.keep = 1, .on_stage = damage});
  const Loaded loaded = load_resolved(folder.path(), "latest");
  EXPECT_EQ(loaded.state.step, 1);
  EXPECT_EQ(loaded.passed_over, std::vector<fs::path>{folder / "step-00000002"});
  save(folder.path(), sample_state(3, 3), {.keep = 1});
  EXPECT_EQ(steps_of(folder.path()), (std::vector<int64_t>{3}));
}

TEST(Checkpoint, FoldersAboveAreMadeToo) {
  Scratch folder;
  save(folder / "a/b/c", sample_state(1, 1), {});
  EXPECT_EQ(steps_of(folder / "a/b/c"), (std::vector<int64_t>{1}));
}

TEST(Checkpoint, ResolveByEveryName) {
  Scratch folder;
  save(folder.path(), sample_state(1, 1), {.best = true});
  save(folder.path(), sample_state(2, 2), {});
  auto resolved = [&](const std::string& what) {
    return resolve(folder.path(), what).filename().string();
  };
  EXPECT_EQ(resolved("latest"), "step-00000002");
  EXPECT_EQ(resolved("best"), "step-00000001");
  EXPECT_EQ(resolved("best_model"), "step-00000001");
  EXPECT_EQ(resolved("step-00000001"), "step-00000001");
  EXPECT_EQ(resolved((folder / "step-00000001").string()), "step-00000001");
  EXPECT_EQ(resolved((folder / "latest").string()), "step-00000002");
  EXPECT_EQ(resolve("elsewhere", (folder / "latest").string()).filename(), "step-00000002");
  EXPECT_EQ(load_resolved(folder.path(), "best").state.extra.at("mark"), 1);

  auto refused = [&](const std::string& what, ExitCode code) {
    return error_of(code, [&] { resolve(folder.path(), what); });
  };
  EXPECT_TRUE(has(refused("step-00000003", ExitCode::kUsage), "step-00000002 (latest)"));
  EXPECT_TRUE(has(refused("", ExitCode::kUsage), "step-00000001"));
  // As other trainers call it: a file.
  for (const char* name : {"latest.pt", "best.pth", "checkpoints/latest.pt", "model.safetensors"})
    EXPECT_TRUE(has(refused(name, ExitCode::kUsage), "a checkpoint is a folder")) << name;
  EXPECT_TRUE(has(refused("checkpoints/latest.pt", ExitCode::kUsage), "checkpoints/latest"));
  EXPECT_FALSE(has(refused(".pt", ExitCode::kUsage), "a checkpoint is a folder"));
  EXPECT_EQ(resolved(folder.path().string()), "step-00000002");  // a folder: its latest
  fs::create_directory(folder / "empty");
  EXPECT_TRUE(has(refused("empty", ExitCode::kDamaged), "no manifest.json"));
  EXPECT_TRUE(has(error_of(ExitCode::kUsage, [&] { resolve(folder / "empty", "latest"); }),
                  "found none there"));
  EXPECT_TRUE(has(error_of(ExitCode::kUsage, [&] { resolve(folder / "missing", "latest"); }),
                  "found none there"));
  EXPECT_TRUE(has(error_of(ExitCode::kUsage, [&] { resolve(folder / "empty", "best"); }),
                  "no best_model link"));
  EXPECT_TRUE(list(folder / "missing").empty());
}

TEST(Checkpoint, DamagedLatestFallsBackWithAWarningEach) {
  Scratch folder;
  for (int step : {1, 2, 3, 4}) save(folder.path(), sample_state(step, step), {});
  flip(folder / "step-00000004/optimizer.safetensors",
       fs::file_size(folder / "step-00000004/optimizer.safetensors") - 1);
  int64_t before = warning_count();
  EXPECT_EQ(resolve(folder.path(), "latest").filename(), "step-00000003");
  EXPECT_EQ(warning_count(), before + 1);
  flip(folder / "step-00000003/manifest.json", 100);
  EXPECT_EQ(load_resolved(folder.path(), "latest").path.filename(), "step-00000002");
  EXPECT_EQ(warning_count(), before + 3);
  fs::remove(folder / "step-00000002/model.safetensors");
  EXPECT_EQ(load_resolved(folder.path(), "latest").state.step, 1);
  // Named outright, a damaged one is an error.
  EXPECT_TRUE(has(error_of(ExitCode::kDamaged, [&] { resolve(folder.path(), "step-00000004"); }),
                  "\"wte.weight.exp_avg\" is damaged"));
  fs::resize_file(folder / "step-00000001/model.safetensors", 9);
  EXPECT_TRUE(has(error_of(ExitCode::kDamaged, [&] { resolve(folder.path(), "latest"); }),
                  "only damaged ones"));
}

TEST(Checkpoint, LinksThatAreGoneOrPointElsewhere) {
  Scratch folder;
  for (int step : {1, 2}) save(folder.path(), sample_state(step, step), {});
  fs::remove_all(folder / "step-00000002");  // latest dangles
  int64_t before = warning_count();
  EXPECT_EQ(resolve(folder.path(), "latest").filename(), "step-00000001");
  EXPECT_GT(warning_count(), before);
  for (const char* target : {"../../etc", "/etc", "notes", "step-00000001/../.."}) {
    fs::remove(folder / "latest");
    fs::create_symlink(target, folder / "latest");
    before = warning_count();
    EXPECT_EQ(resolve(folder.path(), "latest").filename(), "step-00000001");
    EXPECT_GT(warning_count(), before);
  }
  fs::remove(folder / "latest");
  fs::create_directory(folder / "latest");
  EXPECT_TRUE(
      has(error_of(ExitCode::kEnvironment, [&] { save(folder.path(), sample_state(3, 1), {}); }),
          "move it away"));
}

}  // namespace
}  // namespace octavo::checkpoint

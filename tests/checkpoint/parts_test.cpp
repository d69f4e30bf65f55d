// Checkpoints that several ranks wrote: any other number of ranks reads them.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "base/log.h"
#include "checkpoint/manifest.h"
#include "checkpoint/part_list.h"
#include "checkpoint/ranks.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

std::vector<std::string> names_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void flip_last(const fs::path& path) {
  std::string content = read_text(path);
  content.back() = static_cast<char>(content.back() ^ 4);
  write_text(path, content);
}

fs::path save_well(const fs::path& folder, int64_t step, double mark, int ranks, int shards) {
  const auto outcomes =
      save_together(folder, step, mark, ranks, shards, "t" + std::to_string(step));
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.error, "");
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.path, outcomes[0].path);
  return outcomes[0].path;
}

TEST(CheckpointParts, AnyRanksReadWhatAnyRanksWrote) {
  struct Layout {
    int ranks, shards;
  };
  int64_t step = 0;
  // All sharded, replicas of shards, replicas alone, more ranks than rows.
  for (const Layout& layout : {Layout{4, 4}, {4, 2}, {4, 1}, {3, 3}, {8, 8}, {6, 2}}) {
    Scratch folder;
    ++step;
    const double mark = 1.5 * static_cast<double>(step);
    const fs::path path = save_well(folder.path(), step, mark, layout.ranks, layout.shards);
    EXPECT_EQ(verify(path), std::vector<std::string>());
    EXPECT_EQ(names_of(folder.path()), (std::vector<std::string>{"latest", path.filename()}));
    const State opened = open(path), loaded = load_resolved(folder.path(), "latest").state;
    for (int ranks : {1, 2, 3, 4, 8}) {
      EXPECT_EQ(difference(opened, ranks), "") << layout.ranks << " to " << ranks;
      EXPECT_EQ(difference(loaded, ranks), "");
    }
    EXPECT_EQ(loaded.step, step);
    EXPECT_EQ(loaded.groups.at("model").size(), 3);
    const auto summaries = list(folder.path());
    ASSERT_EQ(summaries.size(), 1);
    EXPECT_GT(summaries[0].bytes, WholeModel(1).model["a.weight"].nbytes());
  }
}

TEST(CheckpointParts, EachRankWritesItsShareAndWholeTensorsAreWrittenOnce) {
  Scratch folder;
  const fs::path path = save_well(folder.path(), 1, 2, 4, 4);
  const Manifest manifest = read_manifest(path);
  ASSERT_EQ(manifest.parts.size(), 4);
  std::map<std::string, int> times;
  for (int rank = 0; rank < 4; ++rank)
    for (const ListedFile& listed : read_part(path, manifest, rank).files)
      for (const auto& item : listed.pieces) ++times[item.first];
  EXPECT_EQ(times["a.bias"], 1);
  EXPECT_EQ(times["scale"], 1);
  EXPECT_EQ(times["a.weight"], 4);
  EXPECT_EQ(times["b.weight"], 3);  // 5 rows, two for each: the last rank has none
  EXPECT_TRUE(fs::exists(path / "model-00004-of-00004.safetensors"));
  // Regular pieces are said in a word, not listed.
  EXPECT_EQ(manifest.index.at("model").at("a.weight").every, 10);
}

TEST(CheckpointParts, LargeWholeTensorsAreSpreadOverTheRanks) {
  State state;
  for (int i = 0; i < 12; ++i)  // 32 MB each, of which one element exists
    state.groups["model"].emplace_back(str("w", i), at::ones({1}).expand({8 << 20}));
  std::map<std::string, int> writers;
  for (int rank = 0; rank < 4; ++rank) {
    const auto share = share_of(state, {rank, 4, 1, "t"});
    EXPECT_EQ(share.at("model").size(), 3);
    for (const auto& item : share.at("model")) ++writers[item.first];
  }
  EXPECT_EQ(writers.size(), 12);
}

TEST(CheckpointParts, OnlyTouchedPiecesAreCheckedAndTheDamagedOneIsNamed) {
  Scratch folder;
  const fs::path path = save_well(folder.path(), 1, 2, 4, 4);
  flip_last(path / "model-00003-of-00004.safetensors");
  const State state = open(path);
  EXPECT_TRUE(rows(state, "model", "a.weight", 0, 20).defined());  // of the first two ranks
  EXPECT_TRUE(rows(state, "model", "a.weight", 30, 7).defined());
  const std::string message =
      error_of(ExitCode::kDamaged, [&] { tensor(state, "model", "b.weight"); });
  EXPECT_TRUE(has(message, "model-00003-of-00004.safetensors: tensor \"b.weight\" is damaged"))
      << message;
  const auto problems = verify(path);
  ASSERT_EQ(problems.size(), 1);
  EXPECT_TRUE(has(problems[0], "model-00003-of-00004.safetensors: tensor \"b.weight\""));
  // The ranks divide the work; one of them finds it.
  size_t found = 0;
  for (int share = 0; share < 3; ++share) found += verify_share(path, share, 3).size();
  EXPECT_EQ(found, 1);
  error_of(ExitCode::kUsage, [&] { rows(state, "model", "a.weight", 30, 8); });
  EXPECT_FALSE(tensor(state, "model", "no such").defined());
}

TEST(CheckpointParts, EveryFlippedByteOfAListAndTheManifestIsFound) {
  Scratch folder;
  const fs::path path = save_well(folder.path(), 1, 2, 2, 2);
  for (const char* name : {"part-00002-of-00002.json", "manifest.json"}) {
    const std::string good = read_text(path / name);
    for (size_t at = 0; at < good.size(); at += 13) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      write_text(path / name, bad);
      EXPECT_FALSE(verify(path).empty()) << name << " byte " << at;
    }
    write_text(path / name, good);
  }
  EXPECT_TRUE(verify(path).empty());
  // A whole list, but of another save.
  const fs::path other = save_well(folder / "other", 1, 3, 2, 2);
  write_text(path / "part-00002-of-00002.json", read_text(other / "part-00002-of-00002.json"));
  EXPECT_FALSE(verify(path).empty());
  error_of(ExitCode::kDamaged, [&] { tensor(open(path), "model", "a.weight"); });
}

TEST(CheckpointParts, FallbackIsChosenBySizesAndGoesOnFromTheDamaged) {
  Scratch folder;
  for (int step : {1, 2, 3}) {
    const auto path = save_well(folder.path(), step, step, 4, 4);
    if (step == 1) fs::rename(path, folder / "kept");
  }
  fs::rename(folder / "kept", folder / "step-00000001");
  EXPECT_EQ(choose(folder.path(), "latest").filename(), "step-00000003");
  fs::resize_file(folder / "step-00000003/optimizer-00002-of-00004.safetensors", 9);
  const int64_t before = warning_count();
  const fs::path second = choose(folder.path(), "latest");
  EXPECT_EQ(second.filename(), "step-00000002");
  EXPECT_GT(warning_count(), before);
  EXPECT_EQ(choose(folder.path(), "latest", {second}).filename(), "step-00000001");
  error_of(ExitCode::kDamaged, [&] { choose(folder.path(), "step-00000002", {second}); });
  fs::remove(folder / "step-00000002/part-00003-of-00004.json");
  EXPECT_EQ(load_resolved(folder.path(), "latest").path.filename(), "step-00000001");
}

TEST(CheckpointParts, OneRankMissingLeavesTheLastGoodOne) {
  Scratch folder;
  save_well(folder.path(), 1, 1, 4, 4);
  const auto outcomes = save_together(folder.path(), 2, 2, 4, 4, "t", /*except=*/2, 0.3);
  EXPECT_TRUE(has(outcomes[0].error, "waited 0.3 s for the part of rank 2 of 4"))
      << outcomes[0].error;
  EXPECT_FALSE(outcomes[1].error.empty());
  EXPECT_EQ(difference(load_resolved(folder.path(), "latest").state, 3), "");
  EXPECT_EQ(list(folder.path()).size(), 1);
  // Of the next start of the run: what was left is cleaned.
  save_well(folder.path(), 3, 3, 2, 2);
  EXPECT_EQ(names_of(folder.path()),
            (std::vector<std::string>{"latest", "step-00000001", "step-00000003"}));
}

TEST(CheckpointParts, AFailingRankIsNotWaitedFor) {
  Scratch folder;
  const WholeModel whole(1);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      Saver saver(folder.path(), {.part = {rank, 3, 3, "t"}, .timeout = 60});
      SaveOptions options;
      if (rank == 1)
        options.on_stage = [](std::string_view stage) {
          if (stage == "folder") fail(ExitCode::kEnvironment, "test", "the disk is full");
        };
      try {
        saver.save(state_of_shard(whole, 1, 1, rank, 3), options);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(has(errors[0], "rank 1 could not write its part")) << errors[0];
  EXPECT_TRUE(has(errors[1], "the disk is full"));
  EXPECT_TRUE(has(errors[2], "the first rank gave up")) << errors[2];
  EXPECT_TRUE(list(folder.path()).empty());
}

// Somebody removes it in the moment before it gets its name.
TEST(CheckpointParts, AFolderThatCannotGetItsNameIsNotWaitedFor) {
  Scratch folder;
  const fs::path temporary = folder / ".tmp-step-00000001-t-1";
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Saver saver(folder.path(), {.part = {rank, 2, 2, "t"}, .timeout = 60});
      SaveOptions options;
      if (rank == 0)
        options.on_stage = [&](std::string_view stage) {
          if (stage == "manifest") fs::remove_all(temporary);
        };
      try {
        saver.save(state_of_shard(WholeModel(1), 1, 1, rank, 2), options);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(has(errors[0], "cannot rename")) << errors[0];
  EXPECT_TRUE(has(errors[1], "the first rank gave up")) << errors[1];
  EXPECT_TRUE(fs::exists(temporary / part_failure_name(0, 2)));  // for those that come later
  save_well(folder.path(), 2, 2, 2, 2);
  EXPECT_EQ(names_of(folder.path()), (std::vector<std::string>{"latest", "step-00000002"}));
}

// The step was saved before, and the file system shows a rank that checkpoint for a moment more.
TEST(CheckpointParts, AReplacedCheckpointIsNoSignThatTheFirstRankGaveUp) {
  Scratch folder;
  const fs::path target = save_well(folder.path(), 1, 1, 2, 2);
  int looks = 0;
  SaveOptions options;
  options.on_stage = [&](std::string_view stage) {
    if (stage == "list") fs::remove_all(folder / ".tmp-step-00000001-t-1");
    if (stage != "look" || ++looks != 2) return;
    Manifest manifest = read_manifest(target);
    manifest.save_id = "t-1";
    const fs::path fresh = folder / ".fresh-manifest";
    write_text(fresh, manifest_text(manifest));
    fs::rename(fresh, target / "manifest.json");
  };
  fs::path saved;
  try {
    Saver saver(folder.path(), {.part = {1, 2, 2, "t"}, .timeout = 20});
    saved = saver.save(state_of_shard(WholeModel(1), 1, 1, 1, 2), options);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(saved, target);
}

TEST(CheckpointParts, SlicesThatDoNotMakeAWholeAreRefused) {
  Scratch folder;
  const auto save_with_hole = [&](int rank) {
    State state = state_of_shard(WholeModel(1), 1, 1, rank, 2);
    if (rank == 1) state.slices["model"]["a.weight"].first_row = 18;
    Saver saver(folder.path(), {.part = {rank, 2, 2, "t"}, .timeout = 20});
    return error_of(ExitCode::kEnvironment, [&] { saver.save(std::move(state), {}); });
  };
  std::string first;
  std::thread thread([&] { first = save_with_hole(0); });
  save_with_hole(1);
  thread.join();
  EXPECT_TRUE(has(first, "do not make up the whole")) << first;
}

TEST(CheckpointParts, CheckpointsOfOneProcessAreReadByRows) {
  Scratch folder;
  const WholeModel whole(4);
  const fs::path path = save(folder.path(), state_of_shard(whole, 1, 4, 0, 1), {});
  EXPECT_TRUE(fs::exists(path / "model.safetensors"));
  EXPECT_FALSE(read_manifest(path).in_parts());
  EXPECT_EQ(difference(open(path), 8), "");
  EXPECT_EQ(difference(load(path), 3), "");
  // From before headers had a hash of their own.
  Manifest manifest = read_manifest(path);
  for (ManifestFile& file : manifest.files) file.header_hash.clear();
  write_text(path / "manifest.json", manifest_text(manifest));
  EXPECT_EQ(difference(open(path), 8), "");
  flip_last(path / "model.safetensors");
  EXPECT_TRUE(has(error_of(ExitCode::kDamaged, [&] { open(path); }), "model.safetensors"));
}

}  // namespace
}  // namespace octavo::checkpoint

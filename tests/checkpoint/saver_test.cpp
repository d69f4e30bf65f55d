// Saves in the background: what is written is the state at start(), whatever training does after.
#include "checkpoint/saver.h"

#include "base/log.h"
#include "checkpoint/folders.h"
#include "checkpoint/ranks.h"
#include "checkpoint/save_gate.h"
#include "checkpoint/snapshot.h"

namespace octavo::checkpoint {
namespace {

// Several chunks of 32 MB, so that a part of them can be copied.
State big_state(int64_t step, const at::Tensor& weight) {
  State state;
  state.step = step;
  state.groups["model"] = {{"w", weight}, {"small", weight[0]}};
  return state;
}

constexpr int64_t kRows = 20, kColumns = 1 << 20;  // 80 MB
constexpr uint64_t kBytes = uint64_t{4} * kRows * kColumns;

bool is_filled_with(const at::Tensor& tensor, float value) {
  return tensor.eq(value).all().item<bool>();
}

TEST(Saver, AnUpdateThatCannotWaitForTheDiskCopies) {
  Scratch folder;
  Saver saver(folder.path(), {.memory_budget = uint64_t{1} << 30});
  at::Tensor weight = at::full({kRows, kColumns}, 1.0f);
  SaveGate gate;
  saver.start(big_state(1, weight), gate.options("folder"));  // nothing was read yet
  gate.wait_until_reached();
  saver.before_update();
  weight.fill_(2);
  gate.open();
  EXPECT_TRUE(saver.wait());
  EXPECT_GE(saver.counts().copied, kBytes);
  EXPECT_EQ(saver.counts().waited, 0);
  const State state = load(folder / "step-00000001");
  EXPECT_TRUE(is_filled_with(tensor(state, "model", "w"), 1));
  EXPECT_EQ(saver.receipt().at("saves"), 1);
}

TEST(Saver, WhatDoesNotFitIntoTheBudgetIsWaitedFor) {
  Scratch folder;
  Saver saver(folder.path(), {.memory_budget = uint64_t{40} << 20});
  at::Tensor weight = at::full({kRows, kColumns}, 1.0f);
  SaveGate gate;
  saver.start(big_state(1, weight), gate.options("folder"));
  gate.wait_until_reached();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  saver.before_update();
  weight.fill_(2);
  later.join();
  EXPECT_TRUE(saver.wait());
  EXPECT_LE(saver.counts().copied, uint64_t{40} << 20);
  EXPECT_GT(saver.counts().copied, 0);
  EXPECT_GT(saver.counts().waited, 0);
  EXPECT_TRUE(is_filled_with(tensor(load(folder / "step-00000001"), "model", "w"), 1));
}

TEST(Saver, ADiskThatIsFastEnoughNeedsNoCopy) {
  Scratch folder;
  Saver saver(folder.path(), {});
  at::Tensor weight = at::full({4, 16}, 1.0f);
  SaveGate gate;
  saver.start(big_state(1, weight), gate.options("manifest"));  // the file is written
  gate.wait_until_reached();
  saver.before_update();
  weight.fill_(2);
  gate.open();
  EXPECT_TRUE(saver.wait());
  EXPECT_EQ(saver.counts().copied, 0);
  EXPECT_TRUE(is_filled_with(tensor(load(folder / "step-00000001"), "model", "w"), 1));
}

TEST(Saver, GroupsThatChangeAreCopiedAtOnce) {
  Scratch folder;
  Saver saver(folder.path(), {});
  at::Tensor weight = at::full({4, 16}, 1.0f), scale = at::full({4}, 1.0f);
  State state = big_state(1, weight);
  state.groups["fp8"] = {{"scale", scale}};
  state.changing = {"fp8"};
  SaveGate gate;
  saver.start(std::move(state), gate.options("folder"));
  scale.fill_(9);
  gate.open();
  EXPECT_TRUE(saver.wait());
  EXPECT_TRUE(is_filled_with(tensor(load(folder / "step-00000001"), "fp8", "scale"), 1));
}

TEST(Saver, AFailureIsAWarningInTheBackgroundAndAnErrorInTheForeground) {
  Scratch folder;
  Saver saver(folder.path(), {});
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  saver.start(big_state(1, weight), {});
  EXPECT_TRUE(saver.wait());
  const SaveOptions full = {.on_stage = [](std::string_view stage) {
    if (stage == "model.safetensors") fail(ExitCode::kEnvironment, "test", "the disk is full");
  }};
  const int64_t before = warning_count();
  saver.start(big_state(2, weight), full);
  EXPECT_FALSE(saver.wait());
  EXPECT_EQ(warning_count(), before + 1);
  saver.before_update();
  EXPECT_EQ(saver.counts().failed, 1);
  error_of(ExitCode::kEnvironment, [&] { saver.save(big_state(2, weight), full); });
  EXPECT_EQ(load_resolved(folder.path(), "latest").state.step, 1);
  EXPECT_EQ(saver.save(big_state(2, weight), {}).filename(), "step-00000002");
  EXPECT_TRUE(saver.wait());
}

TEST(Saver, APermanentOneThatFailedIsMadeUpForOnce) {
  Scratch folder;
  Saver saver(folder.path(), {});
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  saver.start(big_state(1, weight), {});
  saver.start(big_state(2, weight), {.permanent_due = 2, .on_stage = [](std::string_view stage) {
                                       if (stage == "folder")
                                         fail(ExitCode::kEnvironment, "test", "the disk is full");
                                     }});
  for (int64_t step = 3; step <= 4; ++step)
    saver.start(big_state(step, weight), {.permanent_due = 2});
  EXPECT_TRUE(saver.wait());
  std::vector<std::pair<int64_t, bool>> found;
  for (const Summary& row : list(folder.path())) found.emplace_back(row.step, row.is_permanent);
  EXPECT_EQ(found, (std::vector<std::pair<int64_t, bool>>{{1, false}, {3, true}, {4, false}}));
}

TEST(Saver, APermanentOneStaysSoWhenItsStepIsSavedAgain) {
  Scratch folder;
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  Saver(folder.path(), {}).save(big_state(1, weight), {.permanent_due = 1});
  Saver resumed(folder.path(), {});
  resumed.save(big_state(1, weight), {});
  resumed.save(big_state(2, weight), {});
  std::vector<std::pair<int64_t, bool>> found;
  for (const Summary& row : list(folder.path())) found.emplace_back(row.step, row.is_permanent);
  EXPECT_EQ(found, (std::vector<std::pair<int64_t, bool>>{{1, true}, {2, false}}));
}

TEST(Saver, ASaveThatIsLeftOutCountsAsFailed) {
  Scratch folder;
  Saver saver(folder.path(), {});
  saver.start(big_state(1, at::full({4, 16}, 1.0f)), {});
  const int64_t before = warning_count();
  saver.leave_out(2, "wanted finite weights");
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_FALSE(saver.wait());
  EXPECT_EQ(saver.counts().saves, 2);
  EXPECT_EQ(saver.counts().failed_in_a_row, 1);
  EXPECT_EQ(load_resolved(folder.path(), "latest").state.step, 1);
}

// The save fails, for want of space say, just before the update.
TEST(Saver, AnUpdateAfterASaveThatFailedFindsNothingToCopy) {
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  Snapshot snapshot(big_state(1, weight).groups);
  snapshot.close();
  const Snapshot::SecureStats secured = snapshot.secure(uint64_t{1} << 30);
  EXPECT_EQ(secured.copied, 0);
  EXPECT_EQ(secured.waited, 0);
}

TEST(Saver, WhatCouldNotBeLoadedIsRefusedAtOnce) {
  Scratch folder;
  Saver saver(folder.path(), {});
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  error_of(ExitCode::kUsage, [&] { saver.start(big_state(-1, weight), {}); });
  saver.before_update();
  saver.start(big_state(1, weight), {});
  EXPECT_TRUE(saver.wait());
}

TEST(Saver, TheNextSaveWaitsAndIsCounted) {
  Scratch folder;
  Saver saver(folder.path(), {});
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  SaveGate gate;
  saver.start(big_state(1, weight), gate.options("folder"));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.open();
  });
  saver.start(big_state(2, weight), {});
  later.join();
  EXPECT_TRUE(saver.wait());
  EXPECT_EQ(saver.counts().waits, 1);
  EXPECT_EQ(list(folder.path()).size(), 2);
}

TEST(Saver, ARunThatEndsFinishesItsOwnSave) {
  Scratch folder;
  const at::Tensor weight = at::full({4, 16}, 1.0f);
  {
    Saver saver(folder.path(), {});
    saver.start(big_state(1, weight), {});
  }  // by an exception, say
  EXPECT_EQ(load_resolved(folder.path(), "latest").state.step, 1);
}

TEST(Saver, ARunThatEndsDoesNotWaitLongForOtherRanks) {
  Scratch folder;
  const auto begin = std::chrono::steady_clock::now();
  {
    Saver saver(folder.path(), {.part = {0, 2, 2, "t"}, .timeout = 600, .last_patience = 0.2});
    saver.start(state_of_shard(WholeModel(1), 1, 1, 0, 2), {});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  EXPECT_TRUE(list(folder.path()).empty());
}

TEST(Saver, RanksSaveAgainAndAgainWhileWeightsChange) {
  Scratch folder;
  constexpr int kSavers = 4, kSteps = 12;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int rank = 0; rank < kSavers; ++rank)
    threads.emplace_back([&, rank] {
      Saver saver(folder.path(), {.part = {rank, kSavers, kSavers, "run"}, .timeout = 30});
      State live = state_of_shard(WholeModel(0), 0, 0, rank, kSavers);
      for (int step = 1; step <= kSteps; ++step) {
        saver.before_update();
        const State next = state_of_shard(WholeModel(step), step, step, rank, kSavers);
        for (auto& [group, tensors] : live.groups)  // in place, as an optimizer does
          for (size_t i = 0; i < tensors.size(); ++i)
            tensors[i].second.copy_(next.groups.at(group)[i].second);
        live.step = step;
        live.extra = next.extra;
        saver.start(live, {.keep = 3});
      }
      if (!saver.wait() || saver.counts().failed > 0) ++failed;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  const auto summaries = list(folder.path());
  EXPECT_EQ(summaries.size(), 3);
  for (const Summary& summary : summaries)
    EXPECT_EQ(difference(load(summary.path), 3), "") << summary.path;
}

}  // namespace
}  // namespace octavo::checkpoint

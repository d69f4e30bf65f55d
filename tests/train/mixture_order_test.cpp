// A run's mixture across checkpoints.

#include "train/state/mixture_order.h"

#include "expect_failure.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

struct MixtureOrder : TrainTest {
  config::Settings mixture() const {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "other words " + std::to_string(i) + "\n";
    write_file_atomic(folder / "other.txt", text);
    auto s = settings();
    s.dataset.push_back((folder / "other.txt").string());
    s.dataset_weights = {0.75, 0.25};
    s.dataset_max_epochs = {0, 0};
    return s;
  }
  static std::vector<uint64_t> step_samples(train::Run& run) {
    run.settings.record_samples = true;
    return train_step(run).samples;
  }
};

TEST_F(MixtureOrder, AResumeContinuesTheOrder) {
  auto s = mixture();
  s.checkpoint_dir = (folder / "checkpoints").string();
  const auto whole = start(s);
  std::vector<std::vector<uint64_t>> wanted;
  for (int i = 0; i < 6; ++i) wanted.push_back(step_samples(*whole));
  const auto first = start(s);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step_samples(*first), wanted[static_cast<size_t>(i)]);
  save(*first, "saved", false, nullptr);
  s.resume = "latest";
  const auto second = start(s);
  EXPECT_EQ(second->progress.position.samples, 12u);
  monitor::StepRecord record = train_step(*second);
  EXPECT_EQ(record.sources[0].tokens, 12u * 16);
  EXPECT_EQ(record.sources[1].tokens, 4u * 16);
  EXPECT_EQ(step_samples(*second), wanted[4]);
  // Other weights hold from the checkpoint on.
  s.dataset_weights = {1, 3};
  const auto other = start(s);
  ASSERT_EQ(other->progress.position.mixture->changes().size(), 2u);
  EXPECT_EQ(other->progress.position.mixture->changes()[1].at, 12u);
  EXPECT_EQ(other->progress.position.mixture->count(0, 12), 9u);
  EXPECT_EQ(other->progress.position.mixture->count(0, 16), 10u);
  s.dataset.pop_back();
  s.dataset_weights = {1};
  s.dataset_max_epochs = {0};
  expect_failure(ExitCode::kUsage, "trained on other data", [&] { start(s); });
}

TEST_F(MixtureOrder, SaysHowLargeSourcesAreShuffled) {
  const auto s = mixture();
  const auto run = start(s);
  const data::MixedTokens& mixed = *run->data.train->mixed();
  const data::Mixture& small = *run->progress.position.mixture;
  EXPECT_TRUE(describe_orders(mixed, small, 16).empty());  // every sample by itself
  const data::Order blocks = {.block = 4, .window = 2, .step = 3, .run = 1};
  const data::Mixture large({{mixed.samples(0), blocks}, {mixed.samples(1), blocks}},
                            {{.at = 0, .weights = {3, 1}, .max_epochs = {0, 0}}});
  const std::vector<std::string> orders = describe_orders(mixed, large, 16);
  ASSERT_EQ(orders.size(), 1u);
  EXPECT_TRUE(orders[0].starts_with(str("shuffle: ", mixed.sources()[0].name, ", ",
                                        mixed.sources()[1].name, ": blocks of 4 samples")))
      << orders[0];
}

// Shares are of max_steps, whatever a step had before.
TEST_F(MixtureOrder, AScheduleStaysInItsStepsWhenTheBatchChanges) {
  auto s = mixture();
  s.mixture_schedule = {"0.1 0.5 0.5", "0.5 0.25 0.75"};
  const auto run = start(s);
  const Json saved = {{"data_mixture", mixture_json(*run->progress.position.mixture)}};
  s = run->settings;
  s.batch_size *= 2;
  const Progress done{.step = 10, .position = {.samples = 40}};
  const auto changes =
      resumed_mixture(s, 1, *run->data.train->mixed(), done, saved, "a")->changes();
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[1].at, 20u);  // as it was
  EXPECT_EQ(changes[2].at, 40u + 15 * 8);
}

TEST_F(MixtureOrder, DamagedAndNewerCheckpointsAreRefused) {
  const auto run = start(mixture());
  const data::MixedTokens& train = *run->data.train->mixed();
  const Json good = mixture_json(*run->progress.position.mixture);
  const Progress done{.step = 1, .position = {.samples = 4}};
  const auto refuse = [&](ExitCode code, const char* word, const Json& saved) {
    expect_failure(code, word, [&] {
      resumed_mixture(run->settings, 1, train, done, {{"data_mixture", saved}}, "a.json");
    });
  };
  EXPECT_NO_THROW(
      resumed_mixture(run->settings, 1, train, done, {{"data_mixture", good}}, "a.json"));
  const auto with = [&](const char* pointer, const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = value;
    return changed;
  };
  refuse(ExitCode::kUsage, "wanted version 1, found 2", with("/version", 2));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes", Json::array()));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes/0/weights", Json::array({1})));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes/0/weights", Json::array({-1, 2})));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes/0/weights", Json::array({"a", 2})));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes/0/max_epochs", Json::array({-1, 2})));
  refuse(ExitCode::kDamaged, "data_mixture", with("/changes/0/at", 3));
  refuse(ExitCode::kDamaged, "data_mixture", with("/orders", Json::array()));
  refuse(ExitCode::kDamaged, "data_mixture", 7);
}

}  // namespace
}  // namespace octavo::train

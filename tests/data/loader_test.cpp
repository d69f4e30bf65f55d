// The loader: any number of ranks trains on the same batches, and a position brings back the rest
// exactly.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "data/token_data.h"
#include "helpers.h"
#include "virtual_tokens.h"

namespace octavo::data {
namespace {

constexpr uint64_t kHugeTokens = 10'000'000'000'000;

// The inputs of `batches` global batches, ranks in turn, from a position.
std::vector<int32_t> global_order(const std::shared_ptr<const TokenData>& data, int world,
                                  int64_t global_rows, int batches, const Position& start) {
  Loader::Options options{.rows = global_rows / world, .length = 8, .seed = 5, .world = world};
  std::vector<std::unique_ptr<Loader>> loaders;
  for (options.rank = 0; options.rank < world; ++options.rank)
    loaders.push_back(std::make_unique<Loader>(data, options, start));
  std::vector<int32_t> order;
  for (int batch = 0; batch < batches; ++batch) {
    for (auto& loader : loaders) {
      const Batch part = loader->next();
      EXPECT_EQ(part.after.samples, start.samples + uint64_t(batch + 1) * uint64_t(global_rows));
      order.insert(order.end(), part.inputs.begin(), part.inputs.end());
    }
  }
  return order;
}

// Tokens count up to 6, which ends a document, again and again.
class ShortDocuments : public VirtualTokens {
 public:
  static constexpr int32_t kEnd = 6;
  explicit ShortDocuments(uint64_t tokens) : VirtualTokens(tokens) {}
  void read(uint64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>((begin + i) % (kEnd + 1));
  }
};

TEST(Loader, HidesOtherDocumentsOfAPlainSampleWhenAsked) {
  const auto data = std::make_shared<ShortDocuments>(1000);
  Loader::Options options{.rows = 2, .length = 10, .shuffle = false};
  EXPECT_EQ(Loader(data, options, {}).next().starts, (std::vector<int32_t>{0, 10}));
  options.document_end = ShortDocuments::kEnd;
  const Batch batch = Loader(data, options, {}).next();
  // Ends are at 6 and 13 of the rows laid end to end; the second row begins inside a document.
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 7, 10, 14}));
  EXPECT_EQ(batch.loss_tokens, 20);
  // An end at the very end of a row is the start of nothing.
  options.length = 7;
  EXPECT_EQ(Loader(data, options, {}).next().starts, (std::vector<int32_t>{0, 7}));
}

TEST(Loader, CutsSamplesIntoTheSequencesOfTheirStage) {
  const auto data = std::make_shared<ShortDocuments>(1000);
  Loader::Options options{.rows = 1, .length = 12, .shuffle = false};
  options.lengths = {{.at = 1, .length = 4}, {.at = 3, .length = 6}};
  const auto starts_from = [&](uint64_t sample) {
    return Loader(data, options, {sample}).next().starts;
  };
  const std::vector<std::vector<int32_t>> wanted = {{0},    {0, 4, 8}, {0, 4, 8},
                                                    {0, 6}, {0, 6},    {0, 6}};
  Loader loader(data, options, {});
  for (uint64_t sample = 0; sample < wanted.size(); ++sample) {
    const Batch batch = loader.next();
    EXPECT_EQ(batch.starts, wanted[sample]) << sample;
    EXPECT_EQ(starts_from(sample), wanted[sample]) << "resumed at " << sample;
    // A sequence's last token has the next token as its target, as a sample's last has.
    for (size_t i = 0; i < 12; ++i)
      EXPECT_EQ(batch.targets[i], static_cast<int32_t>((sample * 12 + i + 1) % 7));
  }
  // Sample 1 has tokens 5 6|0 1 2 3 4 5 6|0 1 2: ends of documents, and of sequences.
  options.document_end = ShortDocuments::kEnd;
  EXPECT_EQ(starts_from(1), (std::vector<int32_t>{0, 2, 4, 8, 9}));
  EXPECT_EQ(starts_from(0), (std::vector<int32_t>{0, 7}));
  options.lengths = {{.at = 0, .length = 5}};
  expect_failure([&] { starts_from(0); }, ExitCode::kUsage, {"divide", "length_schedule"});
}

TEST(Loader, AnyNumberOfRanksTrainsOnTheSameBatches) {
  const auto huge = std::make_shared<VirtualTokens>(kHugeTokens);
  const auto small = std::make_shared<VirtualTokens>(8 * 100 + 1);  // several epochs in 20 batches
  for (const auto& data : {huge, small}) {
    const uint64_t far = sample_count(data->tokens(), 8) * 2 - 50;  // crosses into the third epoch
    for (const uint64_t start : {uint64_t{0}, far}) {
      const auto alone = global_order(data, 1, 24, 20, {start});
      for (const int world : {2, 3, 8})
        EXPECT_EQ(global_order(data, world, 24, 20, {start}), alone) << world << " ranks";
    }
  }
}

TEST(Loader, BatchesFollowTheSampler) {
  const auto data = std::make_shared<VirtualTokens>(kHugeTokens);
  Loader::Options options{.rows = 3, .length = 16, .seed = 11, .rank = 1, .world = 4};
  const Sampler sampler(sample_count(kHugeTokens, 16), 11, true);
  Loader loader(data, options, {120});
  EXPECT_EQ(loader.samples_per_epoch(), sampler.samples());
  for (uint64_t k = 0; k < 10; ++k) {
    const Batch batch = loader.next();
    ASSERT_EQ(batch.inputs.size(), 48u);
    for (uint64_t row = 0; row < 3; ++row) {
      const uint64_t begin = sampler.at(120 + k * 12 + 3 + row) * 16;
      for (uint64_t i = 0; i < 16; ++i) {
        EXPECT_EQ(batch.inputs[row * 16 + i], VirtualTokens::token(begin + i));
        EXPECT_EQ(batch.targets[row * 16 + i], VirtualTokens::token(begin + i + 1));
      }
    }
  }
}

TEST(Loader, AnEpochHasEverySampleOnce) {
  const auto data = std::make_shared<VirtualTokens>(4 * 90 + 3);
  Loader loader(data, {.rows = 9, .length = 4, .seed = 3}, {});
  std::vector<int32_t> firsts;
  for (int k = 0; k < 10; ++k) {
    const Batch batch = loader.next();
    for (int64_t row = 0; row < 9; ++row) firsts.push_back(batch.inputs[size_t(row) * 4]);
  }
  std::sort(firsts.begin(), firsts.end());
  for (int32_t i = 0; i < 90; ++i) EXPECT_EQ(firsts[size_t(i)], 4 * i);
}

// Also of batches that have more samples than are read ahead.
TEST(Loader, TellsOfEverySampleBeforeItIsRead) {
  const auto data = std::make_shared<FarTokens>(8 * 1000 + 1);
  for (const int rank : {0, 1}) {
    Loader loader(data, {.rows = 12, .length = 8, .seed = 3, .rank = rank, .world = 2}, {});
    for (int k = 0; k < 20; ++k) loader.next();
  }
  EXPECT_GE(data->told, 2 * 20 * 12);
  EXPECT_EQ(data->told_late, 0);
  EXPECT_EQ(data->read_untold, 0);
}

// The last batch keeps its shape; rows behind the end have no sample and no loss tokens.
TEST(Loader, EndsWhereItIsTold) {
  const auto data = std::make_shared<VirtualTokens>(8 * 100 + 1);
  for (const int world : {1, 2, 3}) {
    std::vector<uint64_t> samples;
    for (int rank = 0; rank < world; ++rank) {
      Loader loader(
          data, {.rows = 7, .length = 8, .seed = 3, .rank = rank, .world = world, .end = 200}, {});
      for (Position at; at.samples < 200;) {
        const Batch batch = loader.next();
        at = batch.after;
        EXPECT_EQ(batch.inputs.size(), 56u);
        EXPECT_EQ(batch.starts.size(), 7u);
        EXPECT_EQ(batch.loss_tokens, 8 * std::ssize(batch.samples));
        EXPECT_EQ(batch.left_out, 0);
        for (size_t row = 0; row < batch.samples.size(); ++row)
          EXPECT_EQ(batch.inputs[8 * row], VirtualTokens::token(8 * batch.samples[row]));
        samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
      }
    }
    std::ranges::sort(samples);
    ASSERT_EQ(samples.size(), 200u);
    for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(samples[i], i / 2);
  }
}

TEST(Loader, ResumesExactlyAfterEveryBatch) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(40'000, 9));
  prepare(quiet_options({scratch / "in.txt"}, scratch / "out"));
  const std::shared_ptr<const TokenData> data = TokenData::open(scratch / "out", "train");
  const Loader::Options options{.rows = 4, .length = 64, .seed = 8, .rank = 1, .world = 2};
  Loader loader(data, options, {});
  std::vector<Batch> all;
  for (int k = 0; k < 150; ++k) all.push_back(loader.next());
  EXPECT_GT(all.back().after.samples, loader.samples_per_epoch());
  for (size_t k = 0; k + 3 < all.size(); k += 7) {
    Loader resumed(data, options, all[k].after);
    for (size_t j = k + 1; j < k + 4; ++j) {
      const Batch batch = resumed.next();
      EXPECT_EQ(batch.inputs, all[j].inputs);
      EXPECT_EQ(batch.targets, all[j].targets);
      EXPECT_EQ(batch.after.samples, all[j].after.samples);
    }
  }
}

TEST(Loader, RethrowsWhatTheReadingThreadMet) {
  const auto data = std::make_shared<VirtualTokens>(1000, 500);
  Loader loader(data, {.rows = 1, .length = 10, .shuffle = false}, {});
  for (int k = 0; k < 50; ++k) EXPECT_EQ(loader.next().inputs[0], 10 * k);
  for (int again = 0; again < 2; ++again)
    expect_failure([&] { loader.next(); }, ExitCode::kDamaged, {"damage at 500"});
}

TEST(Loader, CountsTheTimeItWaited) {
  class Slow : public VirtualTokens {
   public:
    Slow() : VirtualTokens(100'000) {}
    void read(uint64_t begin, std::span<int32_t> out) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      VirtualTokens::read(begin, out);
    }
  };
  Loader loader(std::make_shared<Slow>(), {.rows = 1, .length = 10}, {});
  for (int k = 0; k < 8; ++k) loader.next();
  EXPECT_GT(loader.wait_seconds(), 0.01);
}

// Tokens [4000, 4500) cannot be trusted.
class TokensWithAHole : public VirtualTokens {
 public:
  using VirtualTokens::VirtualTokens;
  void read(uint64_t begin, std::span<int32_t> out) const override {
    if (begin < kHole.end && begin + out.size() > kHole.begin)
      throw DamagedShard("shard s is damaged", kHole);
    VirtualTokens::read(begin, out);
  }
  std::vector<DamagedRange> damage() const override { return {kHole}; }

 private:
  inline static const DamagedRange kHole{"s", 4000, 4500, "test"};
};

TEST(Loader, LearnsNothingFromDamagedSamplesAndTheRestAsBefore) {
  const auto whole = std::make_shared<VirtualTokens>(20'000);
  const auto damaged = std::make_shared<TokensWithAHole>(20'000);
  Loader::Options options{.rows = 4, .length = 10, .seed = 9};
  Loader wanted(whole, options, {});
  options.skip_damaged = true;
  Loader found(damaged, options, {});
  int64_t left_out = 0;
  for (int k = 0; k < 499; ++k) {
    const Batch a = wanted.next(), b = found.next();
    EXPECT_EQ(a.after.samples, b.after.samples);
    EXPECT_EQ(a.starts, b.starts);
    EXPECT_EQ(b.loss_tokens, a.loss_tokens - 10 * b.left_out);
    left_out += b.left_out;
    for (size_t i = 0; i < a.inputs.size(); ++i)
      if (b.targets[i] != -1) {
        EXPECT_EQ(a.inputs[i], b.inputs[i]);
        EXPECT_EQ(a.targets[i], b.targets[i]);
      }
  }
  EXPECT_EQ(left_out, 51);  // samples 399, whose last target is token 4000, to 449
  options.skip_damaged = false;
  Loader stops(damaged, options, {});
  expect_failure(
      [&] {
        for (;;) stops.next();
      },
      ExitCode::kDamaged, {"shard s"});
}

TEST(Loader, DoesNotLeaveOutMoreThanATwentieth) {
  const auto damaged = std::make_shared<TokensWithAHole>(9'000);
  Loader loader(damaged, {.length = 10, .skip_damaged = true}, {});
  expect_failure(
      [&] {
        for (;;) loader.next();
      },
      ExitCode::kDamaged, {"5%", "500 of 9000", "shard s"});
}

TEST(Loader, RefusesWhatCannotBeServed) {
  const auto data = std::make_shared<VirtualTokens>(100);
  const auto start = [&](const Loader::Options& options) { Loader(data, options, {}); };
  expect_failure([&] { start({.length = 100}); }, ExitCode::kUsage, {"101", "found 100"});
  expect_failure([&] { start({.rows = 0, .length = 4}); }, ExitCode::kUsage, {"rows 0"});
  expect_failure([&] { start({.length = 4, .rank = 2, .world = 2}); }, ExitCode::kUsage,
                 {"rank 2"});
  expect_failure([&] { start({.rows = int64_t{1} << 40, .length = 64}); }, ExitCode::kUsage,
                 {"2^31"});
}

}  // namespace
}  // namespace octavo::data

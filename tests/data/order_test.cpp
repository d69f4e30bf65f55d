// The shuffle in two levels: every sample exactly once an epoch, the same for any number of ranks,
// from any position, and out of few blocks at a time.

#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <set>
#include <vector>

#include "data/token_data.h"
#include "helpers.h"
#include "virtual_tokens.h"

namespace octavo::data {
namespace {

// Small in every way: short last blocks, windows and rounds, more lanes than blocks, steps larger
// than an epoch.
std::vector<Order> small_orders() {
  std::vector<Order> orders;
  for (const uint64_t block : {1, 2, 3, 7, 40})
    for (const uint64_t window : {1, 2, 5})
      for (const auto& [step, run] :
           {std::pair{1, 1}, {4, 1}, {4, 4}, {6, 2}, {12, 3}, {16, 1}, {64, 8}})
        orders.push_back({block, window, static_cast<uint64_t>(step), static_cast<uint64_t>(run)});
  return orders;
}

TEST(Order, EverySmallEpochHasEverySampleOnce) {
  uint64_t epochs = 0;
  for (const Order& order : small_orders())
    for (uint64_t samples = 1; samples <= 150; ++samples) {
      // Epochs begin in any row of a step.
      const BlockOrder epoch(samples, samples * 31 + order.block, order, samples * 7 % order.step);
      std::vector<uint8_t> seen(samples, 0);
      for (uint64_t i = 0; i < samples; ++i) {
        const uint64_t sample = epoch.at(i);
        ASSERT_LT(sample, samples);
        ASSERT_EQ(seen[sample]++, 0) << samples << " samples, blocks of " << order.block;
        ASSERT_EQ(epoch.inverse(sample), i);
      }
      ++epochs;
    }
  EXPECT_EQ(epochs, 15'750u);
}

TEST(Order, LargeEpochsInvert) {
  const Order order = order_for(uint64_t{10'000'000'000'000} / 4096, 8192, 4096);
  for (const uint64_t samples :
       {uint64_t{2'441'406'250}, uint64_t{2'441'406'251}, uint64_t{1} << 50, kMaxSamples - 1}) {
    const BlockOrder epoch(samples, 99, order, samples % 3 * 1111);
    for (uint64_t i = 0; i < 20'000; ++i) {
      const uint64_t index = i < 10'000 ? i * (samples / 10'000) : samples - 1 - (i - 10'000);
      ASSERT_EQ(epoch.inverse(epoch.at(index)), index);
      ASSERT_EQ(epoch.at(epoch.inverse(index)), index);
    }
  }
}

TEST(Order, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const Order order{.block = 16, .window = 4, .step = 8, .run = 2};
  constexpr uint64_t kSamples = 10'007;
  const Sampler first(kSamples, 1, true, order), second(kSamples, 2, true, order);
  uint64_t same_seed = 0, same_epoch = 0;
  for (uint64_t i = 0; i < kSamples; ++i) {
    same_seed += first.at(i) == second.at(i);
    same_epoch += first.at(i) == first.at(i + kSamples);
    ASSERT_EQ(first.position_of(3, first.at(3 * kSamples + i)), 3 * kSamples + i);
  }
  EXPECT_LT(same_seed, 20u);  // one is expected of random orders
  EXPECT_LT(same_epoch, 20u);
}

// A change of these numbers changes the order of every run that is resumed.
TEST(Order, TheOrderIsPinned) {
  const Sampler small(1000, 42, true, {.block = 16, .window = 4, .step = 8, .run = 2});
  const Sampler large(2'441'406'250, 42, true, order_for(2'441'406'250, 8192, 1024));
  const std::vector<uint64_t> found = {small.at(0), small.at(1),          small.at(999),
                                       large.at(0), large.at(12'345'678), large.at(2'441'406'250)};
  EXPECT_EQ(found, (std::vector<uint64_t>{830, 818, 161, 1'340'408'646, 219'841'968, 897'768'206}));
}

TEST(Order, IsChosenByTheSizeOfDataAndStep) {
  // Up to 1 GiB: every sample by itself, as always.
  EXPECT_TRUE(order_for(131'072, 8192, 512).is_uniform());
  EXPECT_EQ(order_for(131'073, 8192, 512), (Order{128, 1, 512, 8}));
  // One sample a step: mixed over 64 blocks.
  EXPECT_EQ(order_for(10'000'000, 8192, 1),
            (Order{.block = 128, .window = 64, .step = 1, .run = 1}));
  EXPECT_EQ(order_for(10'000'000, 8192, 32), (Order{128, 2, 32, 1}));
  // Large steps: eight in a row at most, where there is enough data.
  EXPECT_EQ(order_for(2'441'406'250, 8192, 16'384), (Order{128, 2, 16'384, 8}));
  EXPECT_EQ(order_for(140'000, 8192, 16'384).lanes(), 64u);
  // A prime step has no divisors.
  EXPECT_EQ(order_for(2'441'406'250, 8192, 1021), (Order{128, 1, 1021, 1}));
  EXPECT_EQ(order_for(140'000, 8192, 1021), (Order{128, 68, 1021, 1021}));
  // Samples larger than a block, and then fewer of them in memory.
  EXPECT_EQ(order_for(100'000, uint64_t{8} << 20, 4), (Order{1, 2, 4, 1}));
  for (const Order& order :
       {Order{1, 0, 1, 1}, Order{1, 1, 6, 4}, Order{uint64_t{1} << 31, 1, 1, 1}})
    EXPECT_STRNE(problem_of(order), "");
}

// A rank keeps its lanes in every epoch: of an epoch that begins in the middle of a step it needs
// no other blocks than of one that does not.
TEST(Order, EpochsBeginInAnyRowAndRanksKeepTheirLanes) {
  const Order order{.block = 16, .window = 1, .step = 64, .run = 8};
  constexpr uint64_t kSamples = 64 * 160 + 13;
  const BlockOrder epoch(kSamples, 7, order, 27);
  // Row 32 to 39 of all steps, one lane: as many blocks as 8 in 64 samples have, and those at its
  // ends.
  std::set<uint64_t> blocks;
  uint64_t samples = 0;
  for (uint64_t i = 0; i < kSamples; ++i)
    if (const uint64_t row = (27 + i) % 64; row >= 32 && row < 40) {
      blocks.insert(epoch.at(i) / order.block);
      ++samples;
    }
  EXPECT_LE(blocks.size(), samples / order.block + 3);
}

// Blocks that a rank loads for its samples with a cache of `room` blocks, and what it uses of them.
double amplification(uint64_t samples, const Order& order, uint64_t world, uint64_t rank,
                     uint64_t room, uint64_t rounds) {
  const BlockOrder epoch(samples, 7, order);
  std::list<uint64_t> cached;  // most recently used first
  uint64_t loaded = 0, used = 0;
  const uint64_t rows = order.step / world;
  for (uint64_t round = 0; round < rounds; ++round)
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t block = epoch.at(round * order.step + rank * rows + row) / order.block;
      const auto found = std::ranges::find(cached, block);
      if (found == cached.end())
        ++loaded;
      else
        cached.erase(found);
      cached.push_front(block);
      if (cached.size() > room) cached.pop_back();
      ++used;
    }
  return static_cast<double>(loaded * order.block) / static_cast<double>(used);
}

TEST(Order, ARankNeedsFewBlocksAtATime) {
  struct Case {
    uint64_t step, world;
  };
  for (const auto& [step, world] :
       {Case{1, 1}, {32, 1}, {512, 1}, {512, 8}, {4096, 512}, {4096, 64}}) {
    const uint64_t samples = 100'000'000;
    const Order order = order_for(samples, 8192, step);
    // As the loader has it.
    const uint64_t windows = std::min(order.lanes(), step / world) * order.window;
    const uint64_t room = windows + std::clamp<uint64_t>(windows / 4, 16, 32) + 16;
    EXPECT_LE(room, 176u);  // MiB
    const uint64_t rounds = 64 * order.block * order.window / order.run;
    const double ratio = amplification(samples, order, world, world / 2, room, rounds);
    EXPECT_LT(ratio, 1.05) << step << " samples on " << world << " ranks";
    EXPECT_GT(ratio, 0.95);
  }
}

// Sixteen equal parts of the data in the samples of some steps, and neighbours: as if each sample
// were drawn by itself. Chi-square with 15 degrees of freedom is below 45 but once in 10^4.
TEST(Order, StepsDrawFromAllOfTheData) {
  constexpr uint64_t kSamples = 2'441'406'250;
  const Order order = order_for(kSamples, 8192, 1024);
  const BlockOrder epoch(kSamples, 5, order);
  double counts[16] = {};
  uint64_t neighbours = 0, draws = 0;
  std::set<uint64_t> blocks;
  // One sample of each lane, of steps so far apart that lanes have moved on.
  for (uint64_t step = 0; step < 100; ++step)
    for (uint64_t lane = 0; lane < order.lanes(); ++lane) {
      const uint64_t index = step * 1000 * order.step + lane * order.run;
      const uint64_t sample = epoch.at(index);
      counts[sample / (kSamples / 16 + 1)] += 1;
      neighbours += epoch.at(index + 1) == sample + 1;
      blocks.insert(sample / order.block);
      ++draws;
    }
  double chi_square = 0;
  const double expected = static_cast<double>(draws) / 16;
  for (const double count : counts)
    chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 45);
  EXPECT_LT(neighbours, draws / 40);     // of 128 in a block: 1 in 127 by chance
  EXPECT_GT(blocks.size(), draws - 20);  // hardly a block twice
}

// The samples of global batches in order, as `world` ranks load them.
std::vector<uint64_t> loaded_order(const std::shared_ptr<const TokenData>& data, int world,
                                   int64_t rows, const Position& start, uint64_t end) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < world; ++rank)
    loaders.push_back(std::make_unique<Loader>(
        data,
        Loader::Options{
            .rows = rows, .length = 4, .seed = 3, .rank = rank, .world = world, .end = end},
        start));
  std::vector<uint64_t> samples;
  for (Position at = start; at.samples < end;) {
    for (auto& loader : loaders) {
      const Batch batch = loader->next();
      for (size_t row = 0; row < batch.samples.size(); ++row)
        EXPECT_EQ(batch.inputs[4 * row], static_cast<int32_t>(4 * batch.samples[row]));
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
      EXPECT_EQ(batch.after.order, start.order);
      if (&loader == &loaders.back()) at = batch.after;
    }
  }
  return samples;
}

// Any ranks, any batches, resumed anywhere, over three epochs: the same samples in the same order.
TEST(Order, RanksAndResumesKeepIt) {
  constexpr uint64_t kSamples = 53;
  const auto data = std::make_shared<VirtualTokens>(4 * kSamples + 1);
  for (const Order& order : {Order{3, 2, 12, 3}, Order{5, 1, 4, 1}, Order{2, 4, 6, 6}}) {
    const Sampler sampler(kSamples, 3, true, order);
    std::vector<uint64_t> wanted(3 * kSamples);
    for (uint64_t i = 0; i < wanted.size(); ++i) wanted[i] = sampler.at(i);
    for (const auto& [world, rows] :
         {std::pair{1, 1}, {1, 12}, {2, 6}, {3, 4}, {4, 3}, {12, 1}, {5, 2}})
      EXPECT_EQ(loaded_order(data, world, rows, {0, order}, wanted.size()), wanted)
          << world << " ranks with " << rows;
    for (uint64_t from = 0; from < wanted.size(); from += 7)
      EXPECT_EQ(loaded_order(data, 2, 3, {from, order}, wanted.size()),
                std::vector<uint64_t>(wanted.begin() + static_cast<int64_t>(from), wanted.end()));
  }
}

TEST(Order, OfADamagedPositionIsRefused) {
  const auto data = std::make_shared<VirtualTokens>(1000);
  expect_failure(
      [&] {
        Loader(data, {.length = 4}, {0, {1, 1, 6, 4}});
      },
      ExitCode::kDamaged, {"multiple", "another checkpoint"});
}

}  // namespace
}  // namespace octavo::data

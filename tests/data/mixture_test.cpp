// Mixtures: shares within one sample of the target after every sample, each source exactly once an
// epoch, the same order for any ranks and from any position.

#include "data/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "data/mixed_tokens.h"
#include "data/token_data.h"
#include "helpers.h"
#include "virtual_tokens.h"

namespace octavo::data {
namespace {

std::vector<MixtureChange> weights(std::vector<double> numbers, std::vector<uint64_t> epochs = {}) {
  epochs.resize(numbers.size(), 0);
  return {{.at = 0, .weights = std::move(numbers), .max_epochs = std::move(epochs)}};
}

std::vector<Mixture::Source> sources(const std::vector<uint64_t>& samples) {
  std::vector<Mixture::Source> found;
  for (const uint64_t count : samples) found.push_back({count, {}});
  return found;
}

// Walks the mixture: indexes of each source in order, counts as count() says, and after every
// sample each source less than one from its share. `shares` are the weights themselves, not what
// the mixture made of them.
void check_walk(const Mixture& mixture, const std::vector<double>& shares, uint64_t length,
                double slack = 0) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<uint64_t> counts(shares.size(), 0);
  for (uint64_t position = 0; position < length; ++position) {
    const Mixture::Place place = mixture.at(position);
    ASSERT_LT(place.source, counts.size());
    ASSERT_EQ(place.index, counts[place.source]++) << "at " << position;
    for (size_t k = 0; k < counts.size(); ++k) {
      ASSERT_EQ(mixture.count(k, position + 1), counts[k]);
      const double target = static_cast<double>(position + 1) * shares[k] / sum;
      ASSERT_LT(std::abs(static_cast<double>(counts[k]) - target), 1 + 1e-9 + slack)
          << "source " << k << " of " << counts.size() << " after " << position + 1;
    }
  }
}

TEST(Mixture, SharesAreWithinOneSampleOfTheirTargetsAfterEverySample) {
  uint64_t mixtures = 0;
  for (uint64_t a = 1; a <= 7; ++a)
    for (uint64_t b = 1; b <= 7; ++b)
      for (uint64_t c = 0; c <= 7; ++c)
        for (uint64_t d = 0; d <= 3; ++d, ++mixtures) {
          const std::vector<double> shares = {double(a), double(b), double(c), double(d)};
          const Mixture mixture(sources({5, 7, 11, 13}), weights(shares));
          ASSERT_NO_FATAL_FAILURE(check_walk(mixture, shares, 3 * (a + b + c + d)));
        }
  EXPECT_EQ(mixtures, 1568u);
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<double> shares(2 + random() % 30);
    for (double& share : shares) share = static_cast<double>(1 + random() % 1000) / 1000;
    const Mixture mixture(sources(std::vector<uint64_t>(shares.size(), 10)), weights(shares));
    ASSERT_TRUE(mixture.phases()[0].parts.exact);
    ASSERT_NO_FATAL_FAILURE(check_walk(mixture, shares, 4000));
  }
}

TEST(Mixture, WeightsBecomeWholeNumbersAsTheyWereTyped) {
  const auto parts = [](const std::vector<double>& numbers) { return whole_parts(numbers).of; };
  EXPECT_EQ(parts({0.7, 0.3}), (std::vector<uint32_t>{7, 3}));
  EXPECT_EQ(parts({70, 30}), (std::vector<uint32_t>{7, 3}));
  EXPECT_EQ(parts({0.333, 0.667, 0}), (std::vector<uint32_t>{333, 667, 0}));
  EXPECT_EQ(parts({15e12, 3e12}), (std::vector<uint32_t>{5, 1}));
  EXPECT_EQ(parts({1e-9, 2e-9}), (std::vector<uint32_t>{1, 2}));
  // What has no short form is rounded, each to less than 2^-20 of the whole.
  const std::vector<double> odd = {std::sqrt(2.0), std::acos(-1.0), 1e-5, 0};
  const Parts rounded = whole_parts(odd);
  const double sum = std::accumulate(odd.begin(), odd.end(), 0.0);
  EXPECT_FALSE(rounded.exact);
  EXPECT_LE(rounded.sum, kLongestPeriod);
  for (size_t k = 0; k < odd.size(); ++k)
    EXPECT_LT(std::abs(double(rounded.of[k]) / double(rounded.sum) - odd[k] / sum), 0x1p-20);
  EXPECT_EQ(rounded.of[3], 0u);
  const Mixture mixture(sources({3, 3, 3, 3}), weights(odd));
  check_walk(mixture, odd, 20'000, 20'000 * 0x1p-20);
}

TEST(Mixture, APositionFarAwayIsFoundAtOnce) {
  const std::vector<double> odd = {std::sqrt(2.0), 1, 0.01};
  for (const std::vector<double>& shares : {std::vector<double>{7, 2, 1}, odd}) {
    const Mixture mixture(sources({1000, 2000, 3000}), weights(shares));
    for (uint64_t first : {uint64_t{1} << 20, uint64_t{1'000'000'007}, uint64_t{1} << 61}) {
      std::vector<uint64_t> counts;
      for (size_t k = 0; k < 3; ++k) counts.push_back(mixture.count(k, first));
      ASSERT_EQ(counts[0] + counts[1] + counts[2], first);
      for (uint64_t i = 0; i < 500; ++i) {
        const Mixture::Place place = mixture.at(first + i);
        ASSERT_EQ(place.index, counts[place.source]++);
      }
    }
  }
}

TEST(Mixture, ASourceThatIsUsedUpLeavesAndTheOthersShareItsWeight) {
  for (uint64_t a = 1; a <= 12; ++a)
    for (uint64_t b = 1; b <= 12; ++b)
      for (const uint64_t epochs : {1, 2, 3}) {
        const Mixture mixture(sources({a, b, 4}), weights({0.5, 0.3, 0.2}, {epochs, 1, 2}));
        ASSERT_EQ(mixture.end(), a * epochs + b + 8);
        std::vector<uint64_t> counts(3, 0);
        for (uint64_t position = 0; position < mixture.end(); ++position) {
          const Mixture::Place place = mixture.at(position);
          ASSERT_EQ(place.index, counts[place.source]++);
        }
        ASSERT_EQ(counts, (std::vector<uint64_t>{a * epochs, b, 8}));
        // Every phase has the shares of the sources that are left.
        for (size_t i = 0; i < mixture.phases().size(); ++i) {
          const Mixture::Phase& phase = mixture.phases()[i];
          const uint64_t end =
              i + 1 < mixture.phases().size() ? mixture.phases()[i + 1].begin : mixture.end();
          const double full[] = {0.5, 0.3, 0.2}, all = [&] {
            double sum = 0;
            for (size_t k = 0; k < 3; ++k) sum += phase.parts.of[k] > 0 ? full[k] : 0;
            return sum;
          }();
          for (uint64_t position = phase.begin; position <= end; ++position)
            for (size_t k = 0; k < 3; ++k) {
              const double target =
                  phase.parts.of[k] > 0 ? double(position - phase.begin) * full[k] / all : 0;
              const uint64_t taken = mixture.count(k, position) - phase.counts[k];
              ASSERT_LT(std::abs(double(taken) - target), 1 + 1e-9);
            }
        }
      }
  // One has no bound: there is no end, and it goes on alone.
  const Mixture rest(sources({3, 5}), weights({1, 1}, {2, 0}));
  EXPECT_EQ(rest.end(), 0u);
  ASSERT_EQ(rest.phases().size(), 2u);
  EXPECT_EQ(rest.phases()[1].left, (std::vector<size_t>{0}));
  EXPECT_EQ(rest.count(0, 1'000'000), 6u);
}

TEST(Mixture, WeightsMayChangeOnTheWay) {
  std::vector<MixtureChange> changes = weights({1, 0, 3}, {0, 0, 2});
  changes.push_back({.at = 17, .weights = {1, 1, 1}, .max_epochs = {0, 0, 2}});
  changes.push_back({.at = 60, .weights = {1, 1, 1}, .max_epochs = {0, 0, 9}});
  const Mixture mixture(sources({100, 100, 10}), changes);
  EXPECT_EQ(mixture.end(), 0u);
  std::vector<uint64_t> counts(3, 0);
  for (uint64_t position = 0; position < 400; ++position) {
    if (position == 17) EXPECT_EQ(counts[1], 0u);
    if (position == 60) EXPECT_EQ(counts[2], 20u);  // it left before, and comes back
    const Mixture::Place place = mixture.at(position);
    ASSERT_EQ(place.index, counts[place.source]++) << position;
  }
  EXPECT_EQ(counts[2], 90u);
}

TEST(Mixture, HostileNumbersAreRefused) {
  EXPECT_EQ(problem_of(weights({1, 2}), 2), "");
  EXPECT_NE(problem_of(weights({1, 2}), 3), "");
  EXPECT_NE(problem_of(weights({0, 0}), 2), "");
  EXPECT_NE(problem_of(weights({1, -1}), 2), "");
  EXPECT_NE(problem_of(weights({1, NAN}), 2), "");
  EXPECT_NE(problem_of(weights({1, INFINITY}), 2), "");
  EXPECT_NE(problem_of({}, 2), "");
  std::vector<MixtureChange> twice = weights({1, 1});
  twice.push_back(twice.front());
  EXPECT_NE(problem_of(twice, 2), "");
}

// A change of these numbers changes the order of every mixture that is resumed.
TEST(Mixture, TheOrderIsPinned) {
  const Mixture mixture(sources({100, 100, 100}), weights({5, 3, 2}));
  std::string order;
  for (uint64_t i = 0; i < 20; ++i) order += static_cast<char>('a' + mixture.at(i).source);
  EXPECT_EQ(order, "abacababacabacababac");
}

// Long enough that what is expected ahead (32 MB) is few samples.
constexpr int64_t kLength = 1024;

std::shared_ptr<MixedTokens> mixed(const std::vector<uint64_t>& samples) {
  std::vector<MixedTokens::Source> all;
  for (size_t k = 0; k < samples.size(); ++k)
    all.push_back({str("path", k), str("source", k),
                   std::make_shared<VirtualTokens>(samples[k] * kLength + 1 + k % 3)});
  return std::make_shared<MixedTokens>(std::move(all), kLength);
}

Position start_of(const MixedTokens& data, std::vector<MixtureChange> changes,
                  const Order& order = {}) {
  std::vector<Mixture::Source> all;
  for (size_t k = 0; k < data.sources().size(); ++k) all.push_back({data.samples(k), order});
  return {.samples = 0,
          .order = {},
          .mixture = std::make_shared<const Mixture>(std::move(all), std::move(changes))};
}

// The samples of the first `steps` global batches of 12, in the order of the data, on so many ranks
// that read in batches of `rows`, stopped and resumed every `restart` batches.
std::vector<uint64_t> read_all(const std::shared_ptr<MixedTokens>& data, const Position& start,
                               int world, int64_t rows, int batches, int restart) {
  const int per_step = static_cast<int>(12 / (rows * world));
  std::vector<uint64_t> all(static_cast<size_t>(batches) * 12, UINT64_MAX);
  for (int rank = 0; rank < world; ++rank) {
    Position position = start;
    std::unique_ptr<Loader> loader;
    for (int i = 0; i < batches * per_step; ++i) {
      if (loader == nullptr || i % restart == 0)
        loader = std::make_unique<Loader>(
            data,
            Loader::Options{
                .rows = rows, .length = kLength, .seed = 3, .rank = rank, .world = world},
            position);
      const Batch batch = loader->next();
      for (size_t row = 0; row < batch.samples.size(); ++row) {
        const uint64_t place = position.samples + static_cast<uint64_t>(rank * rows) + row;
        all[place] = batch.samples[row];
        // The tokens are those of the source.
        const size_t source = data->source_of(batch.samples[row]);
        EXPECT_EQ(batch.sources[row], static_cast<int32_t>(source));
        const uint64_t local = batch.samples[row] - data->first_sample(source);
        EXPECT_EQ(batch.inputs[row * kLength], VirtualTokens::token(local * kLength));
        EXPECT_EQ(batch.targets[row * kLength + kLength - 1],
                  VirtualTokens::token(local * kLength + kLength));
      }
      // Which rows are a source's, and how many loss tokens they have.
      EXPECT_EQ(batch.sources.size(), static_cast<size_t>(rows));
      for (size_t k = 0; k < data->sources().size(); ++k)
        EXPECT_EQ(batch.source_tokens[k],
                  std::ranges::count(batch.sources, static_cast<int32_t>(k)) * kLength);
      position = batch.after;
    }
  }
  return all;
}

TEST(MixtureLoader, TheOrderIsTheSameForAnyRanksBatchesAndResumes) {
  const auto data = mixed({10, 23, 5});
  std::vector<MixtureChange> changes = weights({0.5, 0.3, 0.2}, {0, 2, 3});
  changes.push_back({.at = 50, .weights = {1, 4, 1}, .max_epochs = {0, 2, 3}});
  for (const Order& order : {Order{}, Order{.block = 3, .window = 2, .step = 4, .run = 2}}) {
    const Position start = start_of(*data, changes, order);
    const std::vector<uint64_t> wanted = read_all(data, start, 1, 12, 12, 1000);
    int runs = 0;
    for (const int world : {1, 2, 3, 4, 6, 12})
      for (const int64_t rows : {1, 2, 3, 4, 6})
        for (const int restart : {1, 3, 1000})
          if (12 % (rows * world) == 0) {
            ASSERT_EQ(read_all(data, start, world, rows, 12, restart), wanted)
                << world << " ranks, " << rows << " rows, resumed every " << restart;
            ++runs;
          }
    EXPECT_EQ(runs, 51);
    // Each source: every sample exactly once in each of its epochs.
    std::map<size_t, std::vector<uint64_t>> seen;
    for (const uint64_t sample : wanted) seen[data->source_of(sample)].push_back(sample);
    for (const auto& [source, samples] : seen)
      for (size_t first = 0; first < samples.size(); first += data->samples(source)) {
        const size_t end = std::min<size_t>(samples.size(), first + data->samples(source));
        const std::set<uint64_t> epoch(samples.begin() + static_cast<ptrdiff_t>(first),
                                       samples.begin() + static_cast<ptrdiff_t>(end));
        ASSERT_EQ(epoch.size(), end - first) << "source " << source;
      }
    EXPECT_LE(seen[1].size(), 46u);
    EXPECT_LE(seen[2].size(), 15u);
  }
}

TEST(MixtureLoader, TellsOfEverySampleThatIsFarAway) {
  const auto far = std::make_shared<FarTokens>(400 * kLength + 1);
  const auto validation = std::make_shared<FarTokens>(400 * kLength + 1);
  const auto near = std::make_shared<VirtualTokens>(400 * kLength + 1);
  for (const auto& data : {far, validation}) {
    const auto mixture = std::make_shared<MixedTokens>(
        std::vector<MixedTokens::Source>{{"a", "a", near}, {"b", "b", data}}, kLength);
    const bool shuffle = data == far;
    const Position start = shuffle ? start_of(*mixture, weights({1, 2})) : Position{};
    Loader loader(mixture, {.rows = 12, .length = kLength, .shuffle = shuffle}, start);
    for (int k = 0; k < 20; ++k) loader.next();
    EXPECT_GE(data->told, shuffle ? 160 : 120);
    EXPECT_EQ(data->told_late, 0);
    EXPECT_EQ(data->read_untold, 0);
  }
}

TEST(MixtureLoader, WithoutWeightsEverySampleComesOnce) {
  const auto data = mixed({40, 3, 17});
  Loader loader(data, {.rows = 5, .length = kLength, .shuffle = false}, {});
  EXPECT_EQ(loader.samples_per_epoch(), 60u);
  std::set<uint64_t> seen;
  uint64_t of_last = 0;
  for (int i = 0; i < 12; ++i)
    for (const uint64_t sample : loader.next().samples) {
      seen.insert(sample);
      of_last += i < 6 && data->source_of(sample) == 2;
    }
  EXPECT_EQ(seen.size(), 60u);
  EXPECT_NEAR(double(of_last), 8.5, 1.5);  // spread evenly: half of its samples in the first half
}

// As many phases as sources, each beginning when one has left: none needs a whole period.
TEST(MixtureLoader, ManySourcesOfUnlikeSizesAreOrderedOnceAndSoon) {
  std::vector<uint64_t> sizes;
  uint64_t all = 0;
  for (uint64_t k = 0; k < 100; ++k) all += sizes.emplace_back(50'021 + 7'919 * k * k % 90'001);
  const auto data = mixed(sizes);
  const std::clock_t begin = std::clock();
  const auto mixture = data->all_once();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(mixture->end(), all);
  EXPECT_GE(mixture->phases().size(), 30u);
  EXPECT_LT(seconds, 2) << "16 s when every phase made its whole period, 0.05 s without";
  EXPECT_EQ(data->all_once(), mixture);
  for (size_t k = 0; k < sizes.size(); ++k) EXPECT_EQ(mixture->count(k, all), sizes[k]);
}

// Of a source with 0.7 of the samples a step has no whole number: those of a rank come from other
// lanes in every step. Its blocks are kept nevertheless, and each is read about once.
TEST(MixtureLoader, BlocksOfASourceWhoseShareIsNoWholeNumberAreReadOnce) {
  constexpr int64_t kShort = 512;
  constexpr uint64_t kBlock = 64;  // samples: 64 KiB of tokens, as much as is checked at a time
  const Scratch scratch;
  put_file(scratch / "in.txt", make_text(kBlock * kShort * 480, 5));
  PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  options.val_fraction = 0;
  prepare(options);
  const auto data = std::make_shared<MixedTokens>(
      std::vector<MixedTokens::Source>{{"a", "a", TokenData::open(scratch / "out", "train")},
                                       {"b", "b", TokenData::open(scratch / "out", "train")}},
      kShort);
  const auto order = [](uint64_t lanes) {
    return Order{.block = kBlock, .window = 1, .step = lanes, .run = 1};
  };
  const Position start = {.samples = 0,
                          .order = {},
                          .mixture = std::make_shared<const Mixture>(
                              std::vector<Mixture::Source>{{data->samples(0), order(60)},
                                                           {data->samples(1), order(26)}},
                              weights({0.7, 0.3}))};
  for (const int rank : {0, 5}) {
    // About one epoch of the first source, as one rank of eight sees it in steps of 86.
    Loader loader(data, {.rows = 1, .length = kShort, .rank = rank, .world = 8}, start);
    const uint64_t batches = data->samples(0) * 10 / 7 / 8;
    for (uint64_t i = 0; i < batches; ++i) loader.next();
    // The token behind a block is in the next 64 KiB, which are read for it.
    const double loads = static_cast<double>(loader.bytes_read()) / (2 * kBlock * kShort * 2);
    EXPECT_GE(loads, 480);
    EXPECT_LT(loads, 1.35 * (480 + 206)) << "of 480 blocks and of 206 of the other source";
  }
}

TEST(MixtureLoader, TheEndOfAMixtureEndsTheLoader) {
  const auto data = mixed({4, 6});
  const Position start = start_of(*data, weights({1, 1}, {1, 2}));
  const uint64_t end = start.mixture->end();
  EXPECT_EQ(end, 16u);
  Loader loader(data, {.rows = 5, .length = kLength, .end = end}, start);
  std::map<uint64_t, int> seen;
  for (int i = 0; i < 4; ++i)
    for (const uint64_t sample : loader.next().samples) ++seen[sample];
  EXPECT_EQ(seen.size(), 10u);
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, sample < 4 ? 1 : 2);
}

TEST(MixedTokens, SourcesThatDoNotFitTogetherAreRefused) {
  expect_failure([] { mixed({5, 0}); }, ExitCode::kUsage, {"path1", "max_seq_length"});
  EXPECT_EQ(source_names({"a/web", "b/web/", "code.jsonl", "s3://x/web"}),
            (std::vector<std::string>{"web", "web_2", "code", "web_3"}));
  EXPECT_NE(mixed({5, 6})->fingerprint(), "virtual");
}

}  // namespace
}  // namespace octavo::data

// The order of samples: a permutation at any size, and the stats tests/data/sampler.py reports.

#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "data/token_data.h"
#include "helpers.h"

namespace {
std::atomic<uint64_t> allocated_bytes{0};
}

// Counts what the code under test takes from the heap, in this whole test program. The thread
// sanitizer has an operator of its own.
#if !__has_feature(thread_sanitizer)
void* operator new(size_t size) {
  allocated_bytes += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
#endif

namespace octavo::data {
namespace {

constexpr uint64_t kVirtualTokens = 10'000'000'000'000;

struct SamplerStats {
  uint64_t sampler_bytes = 0, exhaustive_sizes = 0, inverted = 0, missed = 0, repeated = 0;
  double seek_ns = 0, seek_p99_ns = 0;
};

// Every value of [0, size) exactly once, and the inverse leads back.
void check_whole(uint64_t size, uint64_t key, SamplerStats& stats) {
  const Permutation permutation(size, key);
  std::vector<uint8_t> seen(size, 0);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t value = permutation(i);
    ASSERT_LT(value, size);
    stats.repeated += seen[value]++ > 0;
    ASSERT_EQ(permutation.inverse(value), i) << "size " << size;
  }
  stats.missed += static_cast<uint64_t>(std::count(seen.begin(), seen.end(), 0));
  ++stats.exhaustive_sizes;
}

void check_small_sizes(SamplerStats& stats) {
  for (uint64_t size = 1; size <= 1500; ++size) check_whole(size, size * 77, stats);
  for (const uint64_t size : {4095, 4096, 4097, 65535, 65536, 65537, 100'003, 1'000'000})
    check_whole(size, 5, stats);
}

// A sample is missed or repeated only if two positions share it, that is if inverting does not lead
// back.
void check_large_sizes(SamplerStats& stats) {
  std::mt19937_64 random(1);
  const uint64_t kTop = uint64_t{1} << 62;
  for (const uint64_t size : {kVirtualTokens / 1024, kVirtualTokens / 2048, kVirtualTokens / 1000,
                              kVirtualTokens, (uint64_t{1} << 40) + 1, kTop - 1, kTop}) {
    const Permutation permutation(size, random());
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t x = i < 100   ? uint64_t(i)
                         : i < 200 ? size - uint64_t(i) + 99
                                   : random() % size;
      const uint64_t value = permutation(x);
      ASSERT_LT(value, size);
      stats.repeated += permutation.inverse(value) != x;         // else two positions share it
      stats.missed += permutation(permutation.inverse(x)) != x;  // else no position has it
      stats.inverted += 2;
    }
  }
}

void measure_seek(SamplerStats& stats) {
  const uint64_t samples = sample_count(kVirtualTokens, 1024);
  std::mt19937_64 random(2);
  const uint64_t before = allocated_bytes;
  const Sampler sampler(samples, 1234, true);
  std::vector<double> times(100'000);
  const uint64_t test_bytes = times.size() * sizeof(double);
  uint64_t sum = 0;
  for (double& time : times) {
    const uint64_t position = random() % (samples * 3);  // any epoch: a seek builds its key too
    const auto start = std::chrono::steady_clock::now();
    sum += sampler.at(position);
    time =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  }
  stats.sampler_bytes =
      allocated_bytes - before - test_bytes + sizeof(Sampler) + sizeof(Permutation);
  EXPECT_NE(sum, 0u);
  std::sort(times.begin(), times.end());
  stats.seek_ns = times[times.size() / 2];
  stats.seek_p99_ns = times[times.size() * 99 / 100];
}

TEST(Sampler, VirtualDataSetOfTenTrillionTokens) {
  SamplerStats stats;
  check_small_sizes(stats);
  check_large_sizes(stats);
  measure_seek(stats);
  EXPECT_EQ(stats.missed, 0u);
  EXPECT_EQ(stats.repeated, 0u);
  if (allocated_bytes > 0) EXPECT_LT(stats.sampler_bytes, uint64_t{1} << 20);  // when counted
  EXPECT_LT(stats.seek_p99_ns, 10'000);
  std::printf(
      "data_results virtual_tokens=1e13 sampler_bytes=%llu seek_ns=%.0f seek_p99_ns=%.0f "
      "exhaustive_sizes=%llu inverted=%llu missed=%llu repeated=%llu\n",
      static_cast<unsigned long long>(stats.sampler_bytes), stats.seek_ns, stats.seek_p99_ns,
      static_cast<unsigned long long>(stats.exhaustive_sizes),
      static_cast<unsigned long long>(stats.inverted),
      static_cast<unsigned long long>(stats.missed),
      static_cast<unsigned long long>(stats.repeated));
}

TEST(Sampler, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  constexpr uint64_t kSamples = 10'007;
  const Sampler first(kSamples, 1, true), second(kSamples, 2, true);
  uint64_t same_seed = 0, same_epoch = 0;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < kSamples; ++i) {
      const uint64_t position = epoch * kSamples + i;
      EXPECT_EQ(first.epoch_of(position), epoch);
      EXPECT_EQ(first.position_of(epoch, first.at(position)), position);
      seen.insert(first.at(position));
      same_seed += first.at(position) == second.at(position);
      same_epoch += first.at(position) == first.at(position + kSamples);
    }
    EXPECT_EQ(seen.size(), kSamples);
  }
  // Two random orders agree in about one place per epoch; 10 each would be a one in 10^7 chance.
  EXPECT_LT(same_seed, 30u);
  EXPECT_LT(same_epoch, 30u);
}

// Sixteen equal parts of the data, sampled from the start of a huge epoch: chi-square with 15
// degrees of freedom stays below 45 but once in 10^4 seeds.
TEST(Sampler, TheStartOfAnEpochDrawsFromAllOfTheData) {
  const uint64_t samples = sample_count(kVirtualTokens, 1024);
  const Sampler sampler(samples, 7, true);
  constexpr int kDraws = 16'000;
  double counts[16] = {};
  uint64_t neighbours = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    counts[sampler.at(i) / (samples / 16 + 1)] += 1;
    neighbours += sampler.at(i + 1) == sampler.at(i) + 1;
  }
  double chi_square = 0;
  for (const double count : counts)
    chi_square += (count - kDraws / 16.0) * (count - kDraws / 16.0) / (kDraws / 16.0);
  EXPECT_LT(chi_square, 45);
  EXPECT_LT(neighbours, 3u);
}

// A change of these numbers changes the order of every run that is resumed.
TEST(Sampler, TheOrderIsPinned) {
  const Sampler small(1000, 42, true), large(sample_count(kVirtualTokens, 1024), 42, true);
  const std::vector<uint64_t> found = {small.at(0),
                                       small.at(1),
                                       small.at(999),
                                       small.at(1000),
                                       large.at(0),
                                       large.at(1),
                                       large.at(large.samples())};
  const std::vector<uint64_t> pinned = {750, 593, 61, 12, 3240618978, 9309713358, 7003671018};
  EXPECT_EQ(found, pinned);
}

TEST(Sampler, WithoutShufflingSamplesComeInOrder) {
  const Sampler sampler(10, 3, false);
  for (uint64_t i = 0; i < 30; ++i) EXPECT_EQ(sampler.at(i), i % 10);
  EXPECT_EQ(sampler.position_of(2, 4), 24u);
}

TEST(Sampler, NoSamplesAndTooManyAreRefused) {
  expect_failure([] { Sampler(0, 1, true); }, ExitCode::kUsage, {"wanted", "found 0"});
  expect_failure([] { Permutation((uint64_t{1} << 62) + 1, 1); }, ExitCode::kUsage, {"2^62"});
}

TEST(Sampler, SamplesOverlapByOneToken) {
  EXPECT_EQ(sample_count(0, 4), 0u);
  EXPECT_EQ(sample_count(4, 4), 0u);
  EXPECT_EQ(sample_count(5, 4), 1u);
  EXPECT_EQ(sample_count(8, 4), 1u);
  EXPECT_EQ(sample_count(9, 4), 2u);
}

}  // namespace
}  // namespace octavo::data

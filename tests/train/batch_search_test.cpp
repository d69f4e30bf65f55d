#include "train/batching/batch_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace octavo::train {
namespace {

TEST(BatchSizes, OfAStep) {
  EXPECT_EQ(samples_per_rank(512, 8), 64);
  EXPECT_EQ(samples_per_rank(512, 3), 171);  // 513
  EXPECT_EQ(samples_per_rank(4, 8), 1);
  EXPECT_EQ(divisors(12, 100), (std::vector<int64_t>{1, 2, 3, 4, 6, 12}));
  EXPECT_EQ(divisors(12, 5), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(BatchSizes, HalvesCoverTheSameSamples) {
  EXPECT_EQ(halved({8, 1}), (Batches{4, 2}));
  EXPECT_EQ(halved({6, 2}), (Batches{3, 4}));
  EXPECT_EQ(halved({3, 4}), (Batches{1, 12}));
  EXPECT_EQ(halved({7, 1}), (Batches{1, 7}));
  EXPECT_EQ(halved({1, 9}), std::nullopt);
  for (int64_t batch = 2; batch < 40; ++batch)
    for (int64_t accumulation = 1; accumulation < 7; ++accumulation) {
      const auto next = halved({batch, accumulation});
      ASSERT_TRUE(next);
      EXPECT_EQ(next->batch * next->accumulation, batch * accumulation);
      EXPECT_LE(next->batch, batch / 2);
    }
}

// Memory as passes take it: the fullest of two moments, each a constant and a share of each sample.
struct Machine {
  double limit, before = 100, early = 10, early_each = 4, late = 60, late_each = 1;
  int64_t trials = 0, failures = 0;

  double peak(int64_t size) const {
    const auto n = static_cast<double>(size);
    return before + std::max(early + early_each * n, late + late_each * n);
  }
  BatchSearchResult search(std::vector<int64_t> sizes, bool may_fail,
                           const std::function<double(int64_t)>& forecast) {
    return search_batch({.sizes = std::move(sizes),
                         .limit = limit,
                         .forecast = forecast,
                         .measure = [&](int64_t size) -> std::optional<MemoryTaken> {
                           ++trials;
                           if (peak(size) <= limit) return MemoryTaken{before, peak(size)};
                           ++failures;
                           return std::nullopt;
                         },
                         .may_fail = may_fail});
  }
};

std::vector<int64_t> up_to(int64_t most) {
  std::vector<int64_t> sizes(static_cast<size_t>(most));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

TEST(BatchSearch, FindsTheLargestWhateverTheForecast) {
  for (const double limit : {170.0, 200.0, 231.0, 1000.0, 5000.0, 1e6}) {
    const Machine real{.limit = limit};
    int64_t largest = 0;
    for (int64_t size = 1; size <= 1000; ++size)
      if (real.peak(size) <= limit) largest = size;
    for (const double factor : {0.0, 0.1, 0.5, 1.0, 2.0, 50.0}) {
      Machine machine{.limit = limit};
      const auto found = machine.search(up_to(1000), true,
                                        [&](int64_t size) { return factor * machine.peak(size); });
      EXPECT_EQ(found.batch, largest) << limit << " " << factor;
      EXPECT_EQ(found.trials, machine.trials);
      EXPECT_LE(machine.trials, 20) << limit << " " << factor;
      if (found.batch > 0) EXPECT_EQ(found.peak, machine.peak(largest));
    }
  }
}

TEST(BatchSearch, NeverFailsWhereItMustNot) {
  for (double limit = 165; limit < 3000; limit *= 1.13)
    for (const double factor : {0.75, 1.0, 1.3}) {
      Machine machine{.limit = limit};
      const auto found = machine.search(up_to(1000), false,
                                        [&](int64_t size) { return factor * machine.peak(size); });
      EXPECT_EQ(machine.failures, 0) << limit << " " << factor;
      EXPECT_LE(machine.trials, 40) << limit << " " << factor;
      EXPECT_GT(machine.peak(2 * found.batch + 2), limit) << limit << " " << factor;
      const auto alone = Machine{.limit = limit}.search(up_to(1000), false, nullptr);
      EXPECT_LE(alone.batch, found.batch) << limit << " " << factor;
    }
}

TEST(BatchSearch, ChoosesAmongWhatIsGiven) {
  Machine machine{.limit = 200};  // 22 would fit
  EXPECT_EQ(machine.search(divisors(64, 64), true, nullptr).batch, 16);
  EXPECT_EQ(machine.search({7}, true, nullptr).batch, 7);
  EXPECT_EQ(machine.search({30, 40}, true, nullptr).batch, 0);
}

}  // namespace
}  // namespace octavo::train

#include "train/batching/batch_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::train {
namespace {

using Index = int64_t;  // into BatchSearch::sizes

// The last size of at most `most`; -1: none.
Index last_within(const std::vector<int64_t>& sizes, double most) {
  const auto end =
      std::upper_bound(sizes.begin(), sizes.end(), most,
                       [](double limit, int64_t size) { return limit < double(size); });
  return end - sizes.begin() - 1;
}

Index first_trial(const BatchSearch& s) {
  if (!s.forecast || !s.may_fail) return 0;
  Index fits = -1;
  // Forecasts grow with the size.
  Index low = 0, high = static_cast<Index>(s.sizes.size()) - 1;
  while (low <= high) {
    const Index middle = (low + high) / 2;
    if (s.forecast(s.sizes[static_cast<size_t>(middle)]) <= s.limit) {
      fits = middle;
      low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  if (fits < 0) return 0;
  return std::max<Index>(
      0, last_within(s.sizes, static_cast<double>(s.sizes[static_cast<size_t>(fits)]) / 2));
}

// The largest size that will not run out of memory, by what a pass over that of `index` took.
Index safe_index(const BatchSearch& s, Index index, const MemoryTaken& taken) {
  const auto size_at = [&](Index i) { return s.sizes[static_cast<size_t>(i)]; };
  const double used = std::max(taken.peak - taken.before, 1.0);
  const Index bound =
      last_within(s.sizes, static_cast<double>(size_at(index)) * (s.limit - taken.before) / used);
  if (s.may_fail || !s.forecast) return bound;
  // Where a constant hides what a sample takes, the forecast tells, with a margin.
  constexpr double kMargin = 1.5;
  const double now = s.forecast(size_at(index));
  const auto fits = [&](Index i) {
    return taken.peak + kMargin * (s.forecast(size_at(i)) - now) <= s.limit;
  };
  Index low = index, high = static_cast<Index>(s.sizes.size()) - 1;
  while (low < high) {
    const Index middle = (low + high + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return std::max(bound, low);
}

}  // namespace

int64_t samples_per_rank(int64_t target, int64_t ranks) {
  return std::max<int64_t>(1, (target + ranks / 2) / ranks);
}

std::vector<int64_t> divisors(int64_t samples, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t size = 1; size <= std::min(samples, most); ++size)
    if (samples % size == 0) found.push_back(size);
  return found;
}

std::optional<Batches> halved(const Batches& now) {
  if (now.batch < 2) return std::nullopt;
  const int64_t samples = now.batch * now.accumulation;
  const int64_t batch = divisors(samples, now.batch / 2).back();
  return Batches{batch, samples / batch};
}

BatchSearchResult search_batch(const BatchSearch& s) {
  OCTAVO_ASSERT(!s.sizes.empty());
  BatchSearchResult found;
  Index fits = -1, too_large = static_cast<Index>(s.sizes.size());
  Index next = first_trial(s);
  while (fits + 1 < too_large) {
    const int64_t size = s.sizes[static_cast<size_t>(next)];
    const std::optional<MemoryTaken> taken = s.measure(size);
    ++found.trials;
    if (!taken || taken->peak > s.limit) {
      too_large = next;
      next = (fits + too_large) / 2;
      // Nothing is known to fit: smaller and smaller.
      if (fits < 0) next = too_large / 2;
      continue;
    }
    fits = next;
    found.batch = size;
    found.peak = taken->peak;
    const Index safe = std::min(safe_index(s, fits, *taken), too_large - 1);
    if (safe > fits)
      next = safe;
    else if (!s.may_fail)
      break;
    else
      next = too_large == static_cast<Index>(s.sizes.size()) ? fits + 1 : (fits + too_large) / 2;
  }
  return found;
}

}  // namespace octavo::train

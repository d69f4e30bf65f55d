#pragma once
// The arithmetic of batch sizes: which micro-batches add up to the batch of a step, and which is
// the largest that fits. No device and no model here.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace octavo::train {

// A step of one rank: `accumulation` passes over `batch` samples.
struct Batches {
  int64_t batch = 1, accumulation = 1;
  bool operator==(const Batches&) const = default;
};

// The samples of a step on each of `ranks` so that all take as near `target` as can be.
int64_t samples_per_rank(int64_t target, int64_t ranks);

// Sizes of at most `most` that divide `samples`, ascending.
std::vector<int64_t> divisors(int64_t samples, int64_t most);

// The same samples in passes of at most half the size; nothing below passes of one.
std::optional<Batches> halved(const Batches& now);

struct MemoryTaken {
  double before = 0, peak = 0;  // bytes: before the pass, and at its fullest
};

struct BatchSearch {
  std::vector<int64_t> sizes;  // to choose from, ascending
  double limit = 0;            // bytes
  // A guess of a pass's peak: half of what it lets fit is tried first, where a pass may fail. May
  // be empty.
  std::function<double(int64_t)> forecast;
  // Runs a pass. Nothing: memory ran out.
  std::function<std::optional<MemoryTaken>(int64_t)> measure;
  // Whether a pass may run out of memory. With several ranks it must not: the others would wait in
  // a collective for good. Then only sizes are tried that will not.
  bool may_fail = true;
};

struct BatchSearchResult {
  int64_t batch = 0;  // 0: none fits
  double peak = 0;    // of its pass
  int64_t trials = 0;
};

// A pass takes at most what it took, and no more than that many times more for that many times more
// samples: what it takes beyond `before` is a constant and a share of each sample. So a larger size
// is known to fit before it is tried, until that bound says no more. The rest is bisection, or,
// where a pass may not fail, what the forecast says of the samples that are added.
BatchSearchResult search_batch(const BatchSearch& search);

}  // namespace octavo::train

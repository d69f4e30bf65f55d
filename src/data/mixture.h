#pragma once
// Several sources in one order: which source the sample at each position comes from, and which of
// its samples it is.
//
// Weights become whole numbers, c of every D samples: exactly where they are short decimals (0.7
// and 0.3 are 7 and 3 of 10), else rounded to D = 2^20. Inside a period of D the i-th sample of a
// source comes at floor((i - 1) D / c) or later and before ceil(i D / c). Taking the source with
// the earliest such end that may come always succeeds (the proportionate fairness of Baruah, Cohen,
// Plaxton and Varvel). So after every sample each source has less than one sample more or less than
// its share, and after a period exactly its share. The period is a table: any position is found at
// once, and nothing is replayed at a resume.
//
// A source whose samples came max_epochs times leaves, and the others share its weight; weights may
// also change at a position. Each of these begins a phase, in which shares are counted anew.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "data/order.h"

namespace octavo::data {

// From position `at` on.
struct MixtureChange {
  uint64_t at = 0;
  std::vector<double> weights;       // 0: left out
  std::vector<uint64_t> max_epochs;  // 0: no bound
  bool operator==(const MixtureChange&) const = default;
};

// Weights as whole numbers without a common divisor; 0 stays 0.
struct Parts {
  std::vector<uint32_t> of;
  uint64_t sum = 0;
  bool exact = true;  // false: rounded
};
constexpr uint64_t kLongestPeriod = uint64_t{1} << 20;
Parts whole_parts(const std::vector<double>& weights);

// The order of sources in one period. Made as far as it is asked for: a phase may be short.
class MixturePattern {
 public:
  explicit MixturePattern(Parts parts);
  uint64_t size() const { return parts_.sum; }
  uint64_t made() const;  // samples of it in the table
  size_t source(uint64_t index) const;
  // Of the source, in the first `length` samples; length <= size().
  uint64_t count(size_t source, uint64_t length) const;
  // The shortest beginning that has `count` samples of the source; 1 <= count <= its part.
  uint64_t length_of(size_t source, uint64_t count) const;

 private:
  struct Next {
    uint64_t time;  // from which it may come, or before which it must
    size_t source;
    bool operator>(const Next& other) const {
      return std::pair(time, source) > std::pair(other.time, other.source);
    }
  };
  using Queue = std::priority_queue<Next, std::vector<Next>, std::greater<>>;
  void make(uint64_t length) const;  // called with the lock held

  Parts parts_;
  mutable std::mutex mutex_;
  mutable std::vector<uint16_t> table_;
  mutable std::vector<uint32_t> marks_;   // counts of all sources before every 256th sample
  mutable std::vector<uint32_t> counts_;  // of each source in the table
  mutable Queue waiting_, ready_;
};

class Mixture {
 public:
  struct Source {
    uint64_t samples = 0;  // of an epoch
    Order order;
  };
  // `changes`: ascending, the first at 0; each has a weight and a bound for every source.
  Mixture(std::vector<Source> sources, std::vector<MixtureChange> changes);

  struct Place {
    size_t source;
    uint64_t index;  // of all samples of this source, over its epochs
  };
  // Behind the end it begins again: for a reader that reads ahead of a run.
  Place at(uint64_t position) const;
  // Samples of the source among the first `position`.
  uint64_t count(size_t source, uint64_t position) const;
  uint64_t end() const { return end_; }  // when every source has left; 0: there is no end

  struct Phase {
    uint64_t begin = 0;
    std::vector<uint64_t> counts;  // of each source, before it
    Parts parts;
    std::vector<size_t> left;  // sources that left here
  };
  const std::vector<Phase>& phases() const { return phases_; }
  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<MixtureChange>& changes() const { return changes_; }
  const Phase& phase_of(uint64_t position) const { return phases_[phase_number(position)]; }

 private:
  void add_phases(const MixtureChange& change, uint64_t until);
  size_t phase_number(uint64_t position) const;
  std::shared_ptr<const MixturePattern> pattern(size_t phase) const;

  std::vector<Source> sources_;
  std::vector<MixtureChange> changes_;
  std::vector<Phase> phases_;
  uint64_t end_ = 0;
  // Of phases; made when they are needed.
  mutable std::mutex mutex_;
  mutable std::map<size_t, std::shared_ptr<const MixturePattern>> patterns_;
};

// Every sample of every source once, spread evenly: for validation.
std::vector<MixtureChange> once_each(const std::vector<uint64_t>& samples);

// Of numbers from a file: what is wrong with them; "": nothing.
std::string problem_of(const std::vector<MixtureChange>& changes, size_t sources);

}  // namespace octavo::data

#pragma once
// The channels (columns) of what a down projection reads. A gated MLP multiplies two projections of
// one input; where they come to agree, late in training, one channel grows far above the others
// (arXiv 2409.12517), and one scale per tensor drowns the rest.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

namespace octavo::fp8 {

struct Channels {
  double largest = 0, median = 0;  // of the channels' largest magnitudes
  int64_t worst = -1;              // which has the largest; -1: not looked at

  bool seen() const { return worst >= 0; }
  double ratio() const {
    if (largest == 0) return 1;
    return median > 0 ? largest / median : std::numeric_limits<double>::infinity();
  }
  // Of several micro-batches the one that stands out most.
  void merge(const Channels& other) {
    if (!seen() || (other.seen() && other.ratio() > ratio())) *this = other;
  }
};

// The same as plain numbers, behind those of fp8/health.h.
constexpr int64_t kChannelStats = 3;
inline Channels channels_from(std::span<const double, kChannelStats> stats) {
  return {stats[0], stats[1], static_cast<int64_t>(stats[2])};
}

}  // namespace octavo::fp8

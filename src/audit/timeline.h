#pragma once
// Time on a GPU: when it was busy, what ran at the same time, and why it waited.

#include <cstdint>
#include <utility>
#include <vector>

#include "audit/trace.h"

namespace octavo::audit {

using Interval = std::pair<int64_t, int64_t>;  // begin, end

// Sorted, without overlaps. All sums of the others are of such lists.
std::vector<Interval> union_of(std::vector<Interval> intervals);
int64_t length_of(const std::vector<Interval>& united);
int64_t overlap_of(const std::vector<Interval>& a, const std::vector<Interval>& b);

// Where one GPU had nothing to do, by the reason.
struct Gaps {
  int64_t host = 0;     // the next work was launched after the GPU had run dry
  int64_t sync = 0;     // part of host: the host had waited for the GPU just before
  int64_t queued = 0;   // the next work was launched in time, and waited for something else
  int64_t unknown = 0;  // the trace has no launch of the next work
  int64_t count = 0;    // of gaps because of the host
};

// `work` in order of its begin, all of one GPU.
Gaps gaps_of(const Trace& trace, const std::vector<const GpuWork*>& work);

}  // namespace octavo::audit

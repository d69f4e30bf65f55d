#include "audit/timeline.h"

#include <algorithm>

namespace octavo::audit {
namespace {

// Ends of calls that wait for the GPU, in order.
std::vector<int64_t> synchronizations(const Trace& trace) {
  std::vector<int64_t> ends;
  for (const Launch& launch : trace.launches)
    if (trace.names.text(launch.name).find("Synchronize") != std::string::npos)
      ends.push_back(launch.end);
  std::sort(ends.begin(), ends.end());
  return ends;
}

}  // namespace

std::vector<Interval> union_of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> united;
  for (const Interval& interval : intervals) {
    if (interval.second <= interval.first) continue;
    if (united.empty() || interval.first > united.back().second)
      united.push_back(interval);
    else
      united.back().second = std::max(united.back().second, interval.second);
  }
  return united;
}

int64_t length_of(const std::vector<Interval>& united) {
  int64_t sum = 0;
  for (const auto& [begin, end] : united) add_bounded(sum, end - begin);
  return sum;
}

int64_t overlap_of(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  int64_t sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum +=
        std::max<int64_t>(0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    if (a[i].second < b[j].second)
      ++i;
    else
      ++j;
  }
  return sum;
}

Gaps gaps_of(const Trace& trace, const std::vector<const GpuWork*>& work) {
  Gaps gaps;
  const std::vector<int64_t> syncs = synchronizations(trace);
  int64_t busy_until = work.empty() ? 0 : work.front()->begin;
  for (const GpuWork* next : work) {
    const int64_t gap = next->begin - busy_until, dry = busy_until;
    busy_until = std::max(busy_until, next->end);
    if (gap <= 0) continue;
    if (next->launch == kNoOp) {
      add_bounded(gaps.unknown, gap);
      continue;
    }
    const Launch& launch = trace.launches[next->launch];
    // A call that began before the GPU ran dry and ended after it was late all the same.
    if (launch.end <= dry) {
      add_bounded(gaps.queued, gap);
      continue;
    }
    add_bounded(gaps.host, gap);
    ++gaps.count;
    const auto sync = std::lower_bound(syncs.begin(), syncs.end(), dry);
    if (sync != syncs.end() && *sync <= launch.begin) add_bounded(gaps.sync, gap);
  }
  return gaps;
}

}  // namespace octavo::audit

#include "launch/pulse_watch.h"

#include <algorithm>

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestGap{2000}, kShortest{50}, kLongest{1000};
constexpr double kShare = 0.75;  // of the limit, as the ranks' own watch has it

// The page is the rank's to write: what is no time is none.
std::chrono::nanoseconds limit_of(const RankPage& page) {
  constexpr int64_t kMost = int64_t{1'000'000} * 1'000'000'000;
  return std::chrono::nanoseconds(
      page.layout == kRankPageLayout ? std::clamp<int64_t>(page.hang_limit, 0, kMost) : 0);
}

}  // namespace

milliseconds PulseWatch::interval(const RankPage& page) {
  const auto limit = std::chrono::duration_cast<milliseconds>(limit_of(page));
  return limit.count() == 0 ? kLongest : std::clamp(limit / 60, kShortest, kLongest);
}

bool PulseWatch::look(Clock::time_point now, const RankPage& page) {
  const auto passed = std::min<Clock::duration>(now - last_look_, kLongestGap);
  last_look_ = now;
  const std::chrono::nanoseconds limit = limit_of(page);
  const int64_t pulse = page.pulse;
  if (limit.count() == 0 || pulse != pulse_) {
    pulse_ = pulse;
    silent_ = {};
    said_ = false;
    return false;
  }
  silent_ += passed;
  if (said_ || silent_ < kShare * limit) return false;
  said_ = true;
  return true;
}

}  // namespace octavo::launch

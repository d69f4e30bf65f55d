#include "monitor/speed_watch.h"

#include <algorithm>

namespace octavo::monitor {
namespace {

constexpr double kSecondsThatMatter = 1, kStepsThatSuffered = 2;
constexpr int64_t kFirstSteps = 3;  // they allocate
constexpr double kClearlySlower = 0.98;

}  // namespace

void LostTime::add(double lost, double of) {
  const bool suffered = lost > bad_share_ * of;
  lost_.add(lost);
  of_.add(of);
  suffered_.add(suffered ? 1 : 0);
  if (share() > bad_share_)
    lost_since_ += lost;
  else if (good())
    lost_since_ = 0;
}

double LostTime::share() const {
  return of_.mean() > 0 ? lost_.mean() / of_.mean() : 0;
}

bool LostTime::bad() const {
  const double steps = suffered_.mean() * static_cast<double>(suffered_.size());
  return share() > bad_share_ && lost_since_ >= kSecondsThatMatter && steps >= kStepsThatSuffered;
}

SlowRankDetector::Verdict SlowRankDetector::add(const std::vector<double>& rank_seconds) {
  if (rank_seconds.size() < 2) return {};
  seconds_.resize(rank_seconds.size(), Window(10));
  std::vector<double> means;
  for (size_t r = 0; r < rank_seconds.size(); ++r) {
    seconds_[r].add(rank_seconds[r]);
    means.push_back(seconds_[r].mean());
  }
  const auto slowest = std::ranges::max_element(means) - means.begin();
  const double mean = means[static_cast<size_t>(slowest)];
  means.erase(means.begin() + slowest);
  std::vector<double> others = rank_seconds;
  others.erase(others.begin() + slowest);
  const double usual = median_of(std::move(others));
  if (slowest != slowest_) lost_ = LostTime(kLost);
  slowest_ = static_cast<int>(slowest);
  lost_.add(std::max(rank_seconds[static_cast<size_t>(slowest)] - usual, 0.0), usual);
  return {.slow = lost_.bad(),
          .even = lost_.good(),
          .rank = slowest_,
          .seconds = mean,
          .others = median_of(std::move(means))};
}

SlowerDetector::Verdict SlowerDetector::add(const StepRecord& record) {
  if (baseline_ <= 0 || !record.precision.starts_with("FP8") || ++seen_ <= kFirstSteps) return {};
  speeds_.add(record.tokens_per_second);
  if (!speeds_.full()) return {};
  const double median = median_of(speeds_.values());
  return {.slower = median<kClearlySlower * baseline_, .faster = median> baseline_,
          .tokens_per_second = median,
          .baseline = baseline_};
}

}  // namespace octavo::monitor

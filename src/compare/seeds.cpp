#include "compare/seeds.h"

#include <algorithm>
#include <cmath>

namespace octavo::compare {
namespace {

constexpr double kOneSided = 0.975;  // each end of a 95% interval
constexpr double kPower = 0.95;

// The shortest distance between a true gap and a bound that so many pairs tell apart.
double told_apart(double deviation, int64_t pairs) {
  const auto n = static_cast<double>(pairs);
  return (student_quantile(kOneSided, n - 1) + student_quantile(kPower, n - 1)) * deviation /
         std::sqrt(n);
}

// 0: more than kMostSeeds.
int64_t pairs_for(double deviation, double distance) {
  int64_t low = static_cast<int64_t>(kLeastSeeds), high = kMostSeeds;
  if (told_apart(deviation, high) > distance) return 0;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (told_apart(deviation, middle) > distance)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

int64_t seeds_for_verdict(std::span<const double> gaps, double margin) {
  if (gaps.size() < 2) return static_cast<int64_t>(kLeastSeeds);
  const double mean = mean_of(gaps);
  double squares = 0;
  for (const double gap : gaps) squares += (gap - mean) * (gap - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(gaps.size() - 1));
  const auto found = static_cast<int64_t>(gaps.size());
  const int64_t planned = pairs_for(deviation, margin);
  if (planned == 0 || planned > found) return planned;
  const int64_t nearer = pairs_for(deviation, std::abs(mean - margin));
  return nearer == 0 ? 0 : std::max(nearer, found + 1);
}

}  // namespace octavo::compare

#include "compare/equal_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::compare {
namespace {

constexpr size_t kLeastSteps = 20;
// A slope that is less than so many of its standard errors is none to divide by.
constexpr double kLeastErrors = 4;

// A line through (x, y) by least squares.
struct Fit {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;

  void add(double at, double value) {
    n += 1;
    x += at;
    y += value;
    xx += at * at;
    xy += at * value;
    yy += value * value;
  }
  double spread() const { return xx - x * x / n; }
  double slope() const { return (xy - x * y / n) / spread(); }
  double error() const {
    const double left = yy - y * y / n - slope() * (xy - x * y / n);
    return std::sqrt(std::max(left, 0.0) / (n - 2) / spread());
  }
};

// The fall of a pair's mean loss with ln(step).
Fit fit_of(const Pair& pair) {
  Fit fit;
  const std::vector<int64_t>& steps = pair.pairing.steps;
  for (size_t i = steps.size() / 2; i < steps.size(); ++i) {
    if (steps[i] < 1) continue;
    const double loss = *pair.a->steps.at(steps[i]).loss + *pair.b->steps.at(steps[i]).loss;
    fit.add(std::log(static_cast<double>(steps[i])), loss / 2);
  }
  return fit;
}

Interval logarithm(const Interval& interval) {
  return {std::log(interval.mean), std::log(interval.low), std::log(interval.high),
          interval.effective};
}

// Of two factors that were measured apart.
std::optional<Interval> quotient(const Interval& over, const Interval& under) {
  if (over.low <= 0 || under.low <= 0) return std::nullopt;
  const Interval a = logarithm(over), b = logarithm(under);
  const double mean = a.mean - b.mean, half = std::hypot(a.half(), b.half());
  return Interval{mean, mean - half, mean + half, std::min(a.effective, b.effective)}.exponential();
}

}  // namespace

std::optional<EqualLoss> equal_loss(const std::vector<Pair>& pairs, const Interval& gap,
                                    const std::optional<Interval>& speed, std::string& why) {
  double slope = 0, variance = 0, loss = 0;
  const auto count = static_cast<double>(pairs.size());
  for (const Pair& pair : pairs) {
    const Fit fit = fit_of(pair);
    if (!pair.train || fit.n < static_cast<double>(kLeastSteps))
      return why = str("wanted ", 2 * kLeastSteps, " steps in common for how fast the loss falls"),
             std::nullopt;
    slope += fit.slope() / count;
    variance += fit.error() * fit.error() / (count * count);
    loss += pair.train->a / count;
  }
  if (-slope < kLeastErrors * std::sqrt(variance) || slope >= 0)
    return why =
               "over the second half of the runs the loss does not fall so that it shows: longer "
               "training would not pay for a gap",
           std::nullopt;
  // gap = -slope ln(factor)
  const Interval steps = gap.times(loss / 100 / -slope).exponential();
  if (!std::isfinite(steps.high) || steps.high > 1e3)
    return why = "the gap is too wide for how slowly the loss falls", std::nullopt;
  EqualLoss found{.steps = steps, .net = {}, .fall = -slope * std::log(2.0)};
  if (speed) found.net = quotient(*speed, steps);
  return found;
}

}  // namespace octavo::compare

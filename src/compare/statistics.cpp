#include "compare/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace octavo::compare {
namespace {

constexpr double kLevel = 0.975;  // two-sided 95%
constexpr size_t kLeastBlocks = 12;
// What a row of so few values says of its own correlation is next to nothing: then it counts as
// this at least. Four or five values that are alike by 0.7 were covered by 81% of their "95%".
constexpr size_t kShortRow = 25;
constexpr double kShortRowCorrelation = 0.5;

// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto kept = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / kept(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m <= 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / kept(1 + even * d);
    c = kept(1 + even / c);
    result *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / kept(1 + odd * d);
    c = kept(1 + odd / c);
    result *= c * d;
    if (std::abs(c * d - 1) < 1e-14) break;
  }
  return result;
}

// I_x(a, b), regularised.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_below(double t, double df) {
  const double outside = incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2;
  return t > 0 ? 1 - outside : outside;
}

double variance_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return values.size() > 1 ? sum / static_cast<double>(values.size() - 1) : 0;
}

// Of neighbours, lifted by what a short row loses (Kendall), never negative: that would promise
// more than independent values do.
double neighbour_correlation(std::span<const double> values) {
  const double mean = mean_of(values), n = static_cast<double>(values.size());
  double products = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - mean) * (values[i] - mean);
    if (i > 0) products += (values[i] - mean) * (values[i - 1] - mean);
  }
  if (squares == 0) return 0;
  const double r = products / squares;
  return std::clamp(r + (1 + 3 * r) / n, 0.0, 0.99);
}

struct Spread {
  double error = 0;    // standard error of the mean
  double freedom = 1;  // degrees of freedom behind it
  double half() const { return error * student_quantile(kLevel, freedom); }
};

Spread spread_by_neighbours(std::span<const double> values, double least_correlation = 0) {
  const double n = static_cast<double>(values.size());
  const double rho = std::max(least_correlation, neighbour_correlation(values));
  const double effective = std::max(2.0, n * (1 - rho) / (1 + rho));
  // Alike neighbours also make the row's own variance too small.
  const double shrunk = std::max(0.1, 1 - (n / effective - 1) / (n - 1));
  return {std::sqrt(variance_of(values) / shrunk / effective), effective - 1};
}

std::vector<double> block_means(std::span<const double> values, size_t length) {
  std::vector<double> means;
  for (size_t end = length; end <= values.size(); end += length)
    means.push_back(mean_of(values.subspan(end - length, length)));
  return means;
}

Spread correlated_spread(std::span<const double> values) {
  OCTAVO_ASSERT(values.size() >= 4);
  Spread widest =
      spread_by_neighbours(values, values.size() < kShortRow ? kShortRowCorrelation : 0);
  for (size_t length = 4; values.size() / length >= kLeastBlocks; length *= 4) {
    const Spread coarse = spread_by_neighbours(block_means(values, length));
    if (coarse.half() > widest.half()) widest = coarse;
  }
  return widest;
}

Interval around(double mean, const Spread& spread, double effective) {
  return {mean, mean - spread.half(), mean + spread.half(), effective};
}

}  // namespace

double student_quantile(double probability, double degrees_of_freedom) {
  OCTAVO_ASSERT(probability > 0 && probability < 1 && degrees_of_freedom > 0);
  double low = -1, high = 1;
  while (student_below(low, degrees_of_freedom) > probability && low > -1e15) low *= 2;
  while (student_below(high, degrees_of_freedom) < probability && high < 1e15) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * (1 + std::abs(low)); ++i) {
    const double middle = low + (high - low) / 2;
    (student_below(middle, degrees_of_freedom) < probability ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

Interval Interval::times(double factor) const {
  const double first = low * factor, second = high * factor;
  return {mean * factor, std::min(first, second), std::max(first, second), effective};
}

Interval Interval::exponential() const {
  return {std::exp(mean), std::exp(low), std::exp(high), effective};
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Interval independent_mean(std::span<const double> values) {
  OCTAVO_ASSERT(values.size() >= 2);
  const double n = static_cast<double>(values.size());
  return around(mean_of(values), {std::sqrt(variance_of(values) / n), n - 1}, n);
}

Interval bounded_mean(std::span<const double> values) {
  OCTAVO_ASSERT(values.size() >= 2);
  const double n = static_cast<double>(values.size()), q = student_quantile(kLevel, n - 1);
  const double rows = n + q * q;
  double squares = q * q;
  for (const double value : values) squares += value * value;
  const double mean = mean_of(values), centre = mean * n / rows;
  const double half = q * std::sqrt((squares / rows - centre * centre) / rows);
  return {mean, std::max(-1.0, centre - half), std::min(1.0, centre + half), n};
}

Interval correlated_mean(std::span<const double> values) {
  const Spread spread = correlated_spread(values);
  return around(mean_of(values), spread, spread.freedom + 1);
}

Interval correlated_difference(std::span<const double> a, std::span<const double> b) {
  const Spread first = correlated_spread(a), second = correlated_spread(b);
  const double one = first.error * first.error, two = second.error * second.error;
  // Welch and Satterthwaite.
  const double parts = one * one / first.freedom + two * two / second.freedom;
  const double freedom = parts > 0 ? (one + two) * (one + two) / parts : first.freedom;
  return around(mean_of(b) - mean_of(a), {std::sqrt(one + two), freedom}, freedom + 1);
}

}  // namespace octavo::compare

#pragma once
// Intervals: how far from a mean of few or of correlated values the truth may lie.

#include <span>
#include <vector>

namespace octavo::compare {

// Student's t: the value below which `probability` of the distribution lies.
double student_quantile(double probability, double degrees_of_freedom);

// A mean and the ends of its 95% interval.
struct Interval {
  double mean = 0, low = 0, high = 0;
  double effective = 0;  // as many independent values would say as much

  double half() const { return (high - low) / 2; }
  Interval times(double factor) const;
  Interval exponential() const;  // of a mean of logarithms
};

// Independent values, at least two.
Interval independent_mean(std::span<const double> values);

// Independent values in [-1, 1], at least two, most of which may be 0: differences of answers to
// the same questions. Never of zero width: rows without a difference are no proof that there is
// none. q² rows are added, half of them 1 and half -1 (Agresti and Coull's idea, for pairs), q
// being Student's quantile; for values that are all 0 this is Tango's score interval, ±q²/(n + q²).
Interval bounded_mean(std::span<const double> values);

// Values in a row of which neighbours are alike, at least four: the wider of two intervals. One
// takes the correlation of neighbours for that of all (AR(1), corrected for its bias in short
// rows, and 0.5 at least in those of fewer than 25 values); the other compares the means of long
// blocks, which also sees slow waves under noise.
Interval correlated_mean(std::span<const double> values);

// mean(b) - mean(a) of two such rows that have nothing to do with each other.
Interval correlated_difference(std::span<const double> a, std::span<const double> b);

double mean_of(std::span<const double> values);
// Of an even number the mean of the two in the middle; monitor's own (monitor/window.h), which
// looks for odd values, takes the lower.
double median_of(std::vector<double> values);

}  // namespace octavo::compare

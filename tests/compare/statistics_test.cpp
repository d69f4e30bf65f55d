#include "compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace octavo::compare {
namespace {

// scipy.stats.t.ppf of scipy 1.17.
TEST(Statistics, StudentQuantilesAreScipys) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062047362, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.3026527297, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 4), 2.7764451052, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 9.5), 2.2441374615, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 30), 2.0422724563, 1e-9);
  EXPECT_NEAR(student_quantile(0.975, 1e4), 1.9602012399, 1e-9);
  EXPECT_NEAR(student_quantile(0.9, 3.3), 1.5983669586, 1e-9);
  EXPECT_NEAR(student_quantile(0.05, 7), -1.8945786051, 1e-9);
}

// scipy.stats.t.interval(0.95, n - 1, mean, sem) and ttest_rel(b, a).confidence_interval().
TEST(Statistics, IndependentMeansAreScipys) {
  const std::vector<double> values = {0.4, 1.1, -0.3, 0.9, 0.2};
  const Interval interval = independent_mean(values);
  EXPECT_NEAR(interval.mean, 0.46, 1e-12);
  EXPECT_NEAR(interval.low, -0.23466634338239434, 1e-9);
  EXPECT_NEAR(interval.high, 1.1546663433823945, 1e-9);
  const std::vector<double> differences = {1, 2, 3, 5};  // of {2, 4, 6, 9} and {1, 2, 3, 4}
  EXPECT_NEAR(independent_mean(differences).low, 0.03246911620398496, 1e-9);
  EXPECT_NEAR(independent_mean(differences).high, 5.467530883796015, 1e-9);
}

std::vector<double> correlated_row(std::mt19937_64& random, size_t count, double rho) {
  std::normal_distribution<double> noise;
  std::vector<double> row(count);
  double value = noise(random);
  for (double& one : row) {
    one = value;
    value = rho * value + std::sqrt(1 - rho * rho) * noise(random);
  }
  return row;
}

TEST(Statistics, CorrelatedRowsAreCoveredAndNotDrowned) {
  std::mt19937_64 random(7);
  for (const double rho : {0.0, 0.5, 0.9}) {
    int covered = 0, naive = 0;
    double half = 0;
    for (int trial = 0; trial < 400; ++trial) {
      const std::vector<double> row = correlated_row(random, 300, rho);
      const Interval interval = correlated_mean(row), simple = independent_mean(row);
      covered += interval.low <= 0 && interval.high >= 0;
      naive += simple.low <= 0 && simple.high >= 0;
      half += interval.half() / 400;
    }
    EXPECT_GE(covered, 368) << rho;         // 92%
    if (rho == 0.9) EXPECT_LT(naive, 250);  // what the correlation would have done unseen
    // Three times the half width that one who knew rho would give, at most.
    EXPECT_LT(half, 3 * 1.96 * std::sqrt((1 + rho) / (1 - rho) / 300)) << rho;
  }
}

// The evaluations in the last part of a run: four or five, and neighbours are alike.
TEST(Statistics, FewCorrelatedValuesAreCovered) {
  std::mt19937_64 random(11);
  for (const size_t length : {4u, 5u, 8u, 12u, 20u})
    for (const double rho : {0.0, 0.5, 0.7, 0.9}) {
      int covered = 0;
      for (int trial = 0; trial < 1000; ++trial) {
        const Interval interval = correlated_mean(correlated_row(random, length, rho));
        covered += interval.low <= 0 && interval.high >= 0;
      }
      EXPECT_GE(covered, rho < 0.8 ? 925 : 840) << length << " values, " << rho;
    }
}

TEST(Statistics, SlowWavesUnderNoiseAreSeen) {
  std::mt19937_64 random(8);
  int covered = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> row = correlated_row(random, 1000, 0);
    const std::vector<double> wave = correlated_row(random, 1000, 0.97);
    for (size_t i = 0; i < row.size(); ++i) row[i] += 0.5 * wave[i];
    const Interval interval = correlated_mean(row);
    covered += interval.low <= 0 && interval.high >= 0;
  }
  EXPECT_GE(covered, 270);
}

TEST(Statistics, UnpairedDifference) {
  std::mt19937_64 random(9);
  int covered = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> a = correlated_row(random, 200, 0.5), b = correlated_row(random, 90, 0.7);
    for (double& value : b) value += 3;
    const Interval interval = correlated_difference(a, b);
    covered += interval.low <= 3 && interval.high >= 3;
  }
  EXPECT_GE(covered, 276);
}

// Rows of which few differ, as of two models that answer nearly alike: 95% by an exact count of all
// outcomes is 94.5% at worst; this samples some.
TEST(Statistics, RareDifferencesAreCovered) {
  std::mt19937_64 random(10);
  std::uniform_real_distribution<double> uniform;
  for (const size_t rows : {12u, 100u, 400u})
    for (const double differ : {0.001, 0.01, 0.1})
      for (const double share : {0.0, 0.2, 0.5}) {  // of them that are B's
        int covered = 0;
        for (int trial = 0; trial < 1000; ++trial) {
          std::vector<double> row(rows);
          for (double& value : row) {
            const double u = uniform(random);
            value = u < differ * share ? 1 : u < differ ? -1 : 0;
          }
          const Interval interval = bounded_mean(row);
          const double truth = differ * (2 * share - 1);
          covered += interval.low <= truth && truth <= interval.high;
          EXPECT_LE(interval.low, interval.mean);
          EXPECT_GE(interval.high, interval.mean);
        }
        EXPECT_GE(covered, 930) << rows << " rows, " << differ << ", " << share;
      }
}

TEST(Statistics, RowsWithoutVariation) {
  const std::vector<double> flat(50, 2.5);
  const Interval interval = correlated_mean(flat);
  EXPECT_DOUBLE_EQ(interval.low, 2.5);
  EXPECT_DOUBLE_EQ(interval.high, 2.5);
  EXPECT_DOUBLE_EQ(correlated_difference(flat, flat).mean, 0);
  EXPECT_DOUBLE_EQ(median_of({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median_of({4, 1, 2, 3}), 2.5);
  const Interval turned = Interval{1, 0.5, 2, 9}.times(-2);
  EXPECT_DOUBLE_EQ(turned.low, -4);
  EXPECT_DOUBLE_EQ(turned.high, -1);
}

}  // namespace
}  // namespace octavo::compare

#include "run_report/buckets.h"

#include <gtest/gtest.h>

#include <cmath>

namespace octavo::run_report {
namespace {

TEST(Buckets, FewRecordsStayAsTheyAre) {
  Buckets buckets(8);
  for (int64_t step = 1; step <= 8; ++step) {
    buckets.begin(10 * step);
    buckets.add(0, static_cast<double>(step));
  }
  ASSERT_EQ(buckets.size(), 8u);
  EXPECT_EQ(buckets.width(), 1);
  EXPECT_EQ(buckets.span(7).first, 80);
  EXPECT_EQ(buckets.cell(0, 7).mean(), 8);
}

// Against sums that are made the slow way, for counts that are no power of two.
TEST(Buckets, JoinedRecordsKeepLeastMeanAndMost) {
  for (const int64_t records : {9, 100, 10'000, 12'345}) {
    Buckets buckets(64);
    const auto value = [](int64_t i) { return std::sin(static_cast<double>(i)) * 1000; };
    for (int64_t i = 0; i < records; ++i) {
      buckets.begin(i + 1);
      if (i % 3 == 0) buckets.add(5, value(i));
    }
    ASSERT_LE(buckets.size(), 64u);
    ASSERT_GE(static_cast<int64_t>(buckets.size()) * buckets.width(), records);
    EXPECT_EQ(buckets.records(), records);
    for (size_t b = 0; b < buckets.size(); ++b) {
      const int64_t from = static_cast<int64_t>(b) * buckets.width(),
                    to = std::min(records, from + buckets.width());
      EXPECT_EQ(buckets.span(b).first, from + 1);
      EXPECT_EQ(buckets.span(b).last, to);
      Cell wanted;
      for (int64_t i = from; i < to; ++i)
        if (i % 3 == 0) wanted.add(value(i));
      const Cell found = buckets.cell(5, b);
      ASSERT_EQ(found.count, wanted.count) << records << " " << b;
      if (found.count == 0) continue;
      EXPECT_EQ(found.least, wanted.least);
      EXPECT_EQ(found.most, wanted.most);
      EXPECT_NEAR(found.mean(), wanted.mean(), 1e-9);
    }
  }
}

TEST(Buckets, WhatIsNotFiniteIsCountedAndNotMixedIn) {
  Buckets buckets(2);
  for (int i = 0; i < 4; ++i) {
    buckets.begin(i);
    buckets.add(0, i == 1 ? NAN : i == 2 ? INFINITY : 7.0);
  }
  EXPECT_EQ(buckets.cell(0, 0).lost + buckets.cell(0, 1).lost, 2);
  EXPECT_EQ(buckets.cell(0, 0).mean(), 7);
  EXPECT_EQ(buckets.cell(1, 0).count, 0);  // a field that nobody added
  EXPECT_TRUE(std::isnan(buckets.cell(0, 9).mean()));
}

TEST(Buckets, HugeNumbersHaveAFiniteMean) {
  Cell cell;
  for (int i = 0; i < 3; ++i) cell.add(1.7e308);
  EXPECT_DOUBLE_EQ(cell.mean(), 1.7e308);
}

TEST(Buckets, NarrowsAsFarAsAsked) {
  Buckets buckets(100);
  for (int i = 0; i < 90; ++i) {
    buckets.begin(i);
    buckets.add(0, i);
  }
  buckets.narrow(20);
  ASSERT_LE(buckets.size(), 20u);
  EXPECT_EQ(buckets.width(), 8);
  EXPECT_EQ(buckets.cell(0, 0).most, 7);
  EXPECT_EQ(buckets.cell(0, 11).most, 89);
}

}  // namespace
}  // namespace octavo::run_report

#include "base/progress.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/log.h"

namespace octavo {
namespace {

TEST(Format, Duration) {
  EXPECT_EQ(format_duration(3.21), "3.2 s");
  EXPECT_EQ(format_duration(0), "0.0 s");
  EXPECT_EQ(format_duration(250), "4 m 10 s");
  EXPECT_EQ(format_duration(7500), "2 h 05 m");
  EXPECT_EQ(format_duration(3600), "1 h 00 m");
  EXPECT_EQ(format_duration(200'000), "2 d 07 h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(INFINITY), "?");
  EXPECT_EQ(format_duration(NAN), "?");
  // What rounds up to the next unit is shown in it.
  EXPECT_EQ(format_duration(59.96), "1 m 00 s");
  EXPECT_EQ(format_duration(3599.7), "1 h 00 m");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(1.5e9), "1.5 GB");
  EXPECT_EQ(format_bytes(2e18), "2000.0 PB");
  EXPECT_EQ(format_bytes(999'960), "1.0 MB");
}

TEST(Format, Count) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(124.4e6), "124.4M");
  EXPECT_EQ(format_count(1e13), "10.0T");
  EXPECT_EQ(format_count(1536), "1.5k");
  EXPECT_EQ(format_count(999'960), "1.0M");
}

TEST(Log, CountsWarnings) {
  const int64_t before = warning_count();
  testing::internal::CaptureStderr();
  log_warn("a test's warning");
  log_info("not a warning");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_NE(text.find("warning: a test's warning"), std::string::npos) << text;
}

// Off a terminal nothing is drawn in place, so that log files stay readable.
TEST(Progress, IsQuietInALogFile) {
  testing::internal::CaptureStderr();
  {
    Progress bar("steps", 100, "steps");
    for (int i = 0; i < 100; ++i) bar.set(i);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace octavo

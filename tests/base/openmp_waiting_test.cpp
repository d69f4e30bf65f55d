#include "base/openmp_waiting.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace octavo {
namespace {

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

class OpenmpWaiting : public testing::Test {
 protected:
  OpenmpWaiting() { clear(); }
  ~OpenmpWaiting() override { clear(); }
  static void clear() {
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("OMP_WAIT_POLICY");
  }
};

TEST_F(OpenmpWaiting, TheNumberIsThereWhileTheRuntimeIsLoadedAndNotForChildren) {
  {
    const BriefSpinning brief_spinning;
    const long count = std::stol(value_of("GOMP_SPINCOUNT"));
    EXPECT_GE(count, 100);
    EXPECT_LE(count, 300000) << "libgomp's own number";
  }
  EXPECT_EQ(value_of("GOMP_SPINCOUNT"), "");
  EXPECT_NE(waiting_words().find("sleeps after 50 µs"), std::string::npos) << waiting_words();
}

TEST_F(OpenmpWaiting, WhatTheUserSetStays) {
  ::setenv("GOMP_SPINCOUNT", "777", 1);
  {
    const BriefSpinning brief_spinning;
    EXPECT_EQ(value_of("GOMP_SPINCOUNT"), "777");
  }
  EXPECT_EQ(value_of("GOMP_SPINCOUNT"), "777");
  EXPECT_EQ(waiting_words(), "threads wait as GOMP_SPINCOUNT=777 says");
  clear();
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  {
    const BriefSpinning brief_spinning;
    EXPECT_EQ(value_of("GOMP_SPINCOUNT"), "") << "it would win over OMP_WAIT_POLICY";
  }
  EXPECT_EQ(waiting_variable(), "OMP_WAIT_POLICY=active");
}

TEST_F(OpenmpWaiting, AnEmptyVariableSaysNothing) {
  ::setenv("OMP_WAIT_POLICY", "", 1);
  const BriefSpinning brief_spinning;
  EXPECT_NE(value_of("GOMP_SPINCOUNT"), "");
}

// The spinning takes about as long as it should, whatever a pause costs here.
TEST_F(OpenmpWaiting, TheCountIsMeasured) {
  const long first = spin_count(), second = spin_count();
  EXPECT_LT(first, 20 * second);
  EXPECT_LT(second, 20 * first);
}

}  // namespace
}  // namespace octavo

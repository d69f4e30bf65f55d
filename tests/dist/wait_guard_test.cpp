#include "dist/wait_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;

TEST(GuardedWait, SaysOnceThatItIsLate) {
  std::atomic<int> late = 0;
  {
    const GuardedWait wait(milliseconds(1), [&] {
      ++late;
      throw std::runtime_error("nobody hears it");
    });
    for (int i = 0; i < 100 && late == 0; ++i) std::this_thread::sleep_for(milliseconds(50));
    std::this_thread::sleep_for(milliseconds(600));
  }
  EXPECT_EQ(late, 1);
}

TEST(GuardedWait, SaysNothingWhenItEndsInTime) {
  std::atomic<int> late = 0;
  {
    const GuardedWait wait(milliseconds(1), [&] { ++late; });
  }
  std::this_thread::sleep_for(milliseconds(1600));
  EXPECT_EQ(late, 0);
}

}  // namespace
}  // namespace octavo::dist

#include "base/checked.h"

#include <limits>

#include "expect_failure.h"
#include "scratch.h"

namespace octavo {
namespace {

TEST(Checked, OverflowIsDamage) {
  EXPECT_EQ(checked_add<int64_t>(2, 3, "x"), 5);
  EXPECT_EQ(checked_mul<uint32_t>(65535, 65537, "x"), 0xFFFFFFFFu);
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  expect_failure(ExitCode::kDamaged, "tensor size",
                 [] { checked_add<int64_t>(kMax, 1, "tensor size"); });
  expect_failure(ExitCode::kDamaged, "overflows", [] { checked_mul<int64_t>(kMax / 2, 3, "x"); });
  expect_failure(ExitCode::kDamaged, "overflows", [] { checked_mul<uint32_t>(65536, 65536, "x"); });
  expect_failure(ExitCode::kDamaged, "overflows",
                 [] { checked_add<int64_t>(std::numeric_limits<int64_t>::min(), -1, "x"); });
}

TEST(Checked, Rounding) {
  static_assert(ceil_div(7, 3) == 3 && ceil_div(6, 3) == 2 && ceil_div(0, 3) == 0);
  static_assert(round_up(50257, 64) == 50304 && round_up(64, 64) == 64 && round_up(0, 64) == 0);
}

TEST(Error, CarriesCodeAndRoom) {
  const Error error(ExitCode::kGuard, "optim", "stopped");
  EXPECT_EQ(error.code(), ExitCode::kGuard);
  EXPECT_STREQ(error.what(), "[optim] stopped");
  EXPECT_EQ(str("wanted ", 3, ", got ", 2.5), "wanted 3, got 2.5");
  EXPECT_DEATH(OCTAVO_ASSERT(1 == 2), "this is a bug in octavo: 1 == 2");
}

}  // namespace
}  // namespace octavo

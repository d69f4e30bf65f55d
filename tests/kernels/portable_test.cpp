// Loads, stores and rounding of eight elements at a time, without which nothing else is right.

#include "kernels/portable.h"

#include <gtest/gtest.h>

#include "kernels/arrays.h"

namespace octavo::kernels {
namespace {

TEST(Portable, bf16_is_the_nearest_and_even_in_the_middle) {
  Numbers numbers(9);
  for (int i = 0; i < 200000; ++i) {
    const auto upper = static_cast<uint32_t>(numbers.bits() % 0x7F7F);
    const uint32_t lower = i % 3 == 0 ? 0x8000 : i % 3 == 1 ? 0x8001 : numbers.bits() & 0xFFFF;
    const uint32_t sign = numbers.bits() & 0x80000000;
    const float value = std::bit_cast<float>(sign | upper << 16 | lower);
    const uint32_t up = upper + 1;
    const bool rounds_up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
    ASSERT_EQ(nearest_bf16(value), static_cast<Bf16>(sign >> 16 | (rounds_up ? up : upper)));
  }
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x7F800001u)) & 0x7FC0, 0x7FC0);  // NaN, not infinity
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0xFFFFFFFFu)) & 0x7FC0, 0x7FC0);
  EXPECT_EQ(nearest_bf16(std::bit_cast<float>(0x7F7FFFFFu)), 0x7F80);
}

template <class T>
void check_moving() {
  Numbers numbers(4);
  for (const int shift : {0, 1, 3, 8})
    for (int64_t count = -1; count <= 10; ++count) {
      Array<T> from(10, shift), into(10, shift);
      numbers.fill(from);
      for (int64_t i = 0; i < 10; ++i) narrow_to(77, into[i]);
      float lane[kLane];
      load(from.data(), count, -5, lane);
      for (int i = 0; i < kLane; ++i) EXPECT_EQ(lane[i], i < count ? widened(from[i]) : -5.0f);
      store(lane, count, into.data());
      for (int64_t i = 0; i < 10; ++i)
        EXPECT_EQ(widened(into[i]), i < count && i < kLane ? widened(from[i]) : 77.0f);
    }
}

TEST(Portable, eights_move_as_they_are_and_not_beyond_their_end) {
  check_moving<Bf16>();
  check_moving<float>();
}

TEST(Portable, bytes_move_as_they_are) {
  for (const int shift : {0, 1, 8})
    for (int64_t count = -1; count <= 10; ++count) {
      Array<uint8_t> from(10, shift), into(10, shift);
      for (int64_t i = 0; i < 10; ++i) from[i] = static_cast<uint8_t>(200 + i), into[i] = 9;
      uint8_t lane[kLane];
      load_bytes(from.data(), count, lane);
      store_bytes(lane, count, into.data());
      for (int64_t i = 0; i < 10; ++i)
        EXPECT_EQ(into[i], i < count && i < kLane ? from[i] : uint8_t{9});
    }
}

}  // namespace
}  // namespace octavo::kernels

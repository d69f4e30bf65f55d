#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8/formats.h"
#include "fp8/numbers.h"

namespace octavo::fp8 {
namespace {

TEST(E8M0, EveryCode) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(decode_e8m0(static_cast<uint8_t>(code)), std::ldexp(1.0, code - 127)) << code;
  EXPECT_TRUE(std::isnan(decode_e8m0(kE8M0Nan)));
}

TEST(E8M0, PowersOfTwoAndTheirNeighbours) {
  for (int code = 0; code <= kE8M0Max; ++code) {
    const float power = decode_e8m0(static_cast<uint8_t>(code));
    EXPECT_EQ(encode_e8m0_up(power), code);
    EXPECT_EQ(encode_e8m0_down(power), code);
    const float above = std::nextafter(power, kInf), below = std::nextafter(power, 0.0f);
    EXPECT_EQ(encode_e8m0_up(above), std::min<int>(code + 1, kE8M0Max)) << power;
    EXPECT_EQ(encode_e8m0_down(above), code) << power;
    EXPECT_EQ(encode_e8m0_up(below), code) << power;
    EXPECT_EQ(encode_e8m0_down(below), std::max(code - 1, 0)) << power;
  }
}

TEST(E8M0, EveryPositiveBf16IsEnclosed) {
  for (uint32_t bits = 1; bits < 0x7F80; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    const uint8_t up = encode_e8m0_up(value), down = encode_e8m0_down(value);
    if (value <= 0x1p127f) {
      EXPECT_GE(decode_e8m0(up), value);
    }
    if (value >= 0x1p-127f) {
      EXPECT_LE(decode_e8m0(down), value);
    }
    EXPECT_LE(up - down, 1);
    EXPECT_EQ(up == down, value == decode_e8m0(up) || value > 0x1p127f || value < 0x1p-127f);
  }
}

TEST(E8M0, OutOfRange) {
  for (const auto encode_e8m0 : {encode_e8m0_up, encode_e8m0_down}) {
    EXPECT_EQ(encode_e8m0(0.0f), 0);
    EXPECT_EQ(encode_e8m0(-0.0f), 0);
    EXPECT_EQ(encode_e8m0(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(encode_e8m0(std::numeric_limits<float>::max()), kE8M0Max);
    EXPECT_EQ(encode_e8m0(kInf), kE8M0Max);
    for (const float bad : {kNan, -kNan, -1.0f, -kInf, -std::numeric_limits<float>::denorm_min()})
      EXPECT_EQ(encode_e8m0(bad), kE8M0Nan);
  }
}

}  // namespace
}  // namespace octavo::fp8

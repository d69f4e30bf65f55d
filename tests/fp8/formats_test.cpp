#include "fp8/formats.h"
#include "fp8/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octavo::fp8 {
namespace {

// The tables are there at compile time.
static_assert(max_value(Format::kE4M3) == 448 && max_value(Format::kE5M2) == 57344);
static_assert(decode(Format::kE4M3, 0x01) == 0x1p-9f && decode(Format::kE5M2, 0x81) == -0x1p-16f);
static_assert(kE4M3Values[0x38] == 1 && kE5M2Values[0x3C] == 1);

// By search, in double: the nearest of all non-negative finite codes and of the value that would
// follow the largest; a tie goes to the even code. Shares nothing with the encoder but decode().
int nearest_by_search(Format format, double magnitude) {
  const int last = layout(format).max_code;
  magnitude = std::min(magnitude, 4.0 * decode(format, last));  // keeps the distances exact
  const double step = decode(format, last) - decode(format, last - 1);
  int best = 0;
  double best_distance = magnitude;
  for (int code = 1; code <= last + 1; ++code) {
    const double value = code > last ? decode(format, last) + step : decode(format, code);
    const double distance = std::fabs(value - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

uint8_t expected_code(Format format, float value, Overflow overflow) {
  const Layout l = layout(format);
  const int sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | l.nan_code);
  const int beyond = overflow == Overflow::kSaturate ? l.max_code : l.overflow_code;
  int code = std::isinf(value) ? beyond : nearest_by_search(format, std::fabs(value));
  if (code > l.max_code) code = beyond;
  return static_cast<uint8_t>(sign | code);
}

TEST(Formats, EveryCodeByItsFields) {
  for (const Format format : kFormats) {
    const bool e4m3 = format == Format::kE4M3;
    const int mantissa_bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    for (int code = 0; code < 256; ++code) {
      const float value = decode(format, static_cast<uint8_t>(code));
      const int exponent = (code & 0x7F) >> mantissa_bits;
      const int mantissa = code & ((1 << mantissa_bits) - 1);
      EXPECT_EQ(std::signbit(value), code >= 128) << code;
      if (e4m3 ? (code & 0x7F) == 0x7F : exponent == 31 && mantissa != 0) {
        EXPECT_TRUE(std::isnan(value)) << code;
      } else if (!e4m3 && exponent == 31) {
        EXPECT_TRUE(std::isinf(value)) << code;
      } else {
        const double fraction = std::ldexp(mantissa, -mantissa_bits) + (exponent > 0 ? 1 : 0);
        const double wanted = std::ldexp(fraction, std::max(exponent, 1) - bias);
        EXPECT_EQ(std::fabs(value), wanted) << code;
      }
    }
  }
}

TEST(Formats, RoundTripOfEveryCode) {
  for (const Format format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const float value = decode(format, static_cast<uint8_t>(code));
      const int canonical = std::isnan(value) ? (code & 0x80) | 0x7F : code;
      EXPECT_EQ(encode(format, value, Overflow::kNative), canonical);
      if (!std::isinf(value)) {
        EXPECT_EQ(encode(format, value, Overflow::kSaturate), canonical);
      }
    }
  }
}

TEST(Formats, EveryBf16AgainstASearch) {
  for (const Format format : kFormats) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const float value = std::bit_cast<float>(bits << 16);
      for (const Overflow overflow : {Overflow::kSaturate, Overflow::kNative})
        ASSERT_EQ(encode_bf16(format, static_cast<uint16_t>(bits), overflow),
                  expected_code(format, value, overflow))
            << value;
    }
  }
}

// The middle between two codes goes to the even one, and one float32 beside it to its own side:
// all of them, the subnormals and the step past the largest value too.
TEST(Formats, TiesAndTheirNeighbours) {
  for (const Format format : kFormats) {
    const int last = layout(format).max_code;
    const uint8_t beyond = layout(format).overflow_code;
    for (int code = 0; code <= last; ++code) {
      const float low = decode(format, static_cast<uint8_t>(code));
      const float step = code < last ? decode(format, static_cast<uint8_t>(code + 1)) - low
                                     : low - decode(format, static_cast<uint8_t>(code - 1));
      const float middle = low + step / 2;
      const int next = code < last ? code + 1 : beyond;
      for (const float sign : {1.0f, -1.0f}) {
        const int bit = sign < 0 ? 0x80 : 0;
        const auto native = [&](float x) { return encode(format, sign * x, Overflow::kNative); };
        EXPECT_EQ(native(middle), bit | (code % 2 == 0 ? code : next)) << middle;
        EXPECT_EQ(native(std::nextafter(middle, 0.0f)), bit | code) << middle;
        EXPECT_EQ(native(std::nextafter(middle, kInf)), bit | next) << middle;
      }
    }
  }
}

TEST(Formats, OverflowInBothModes) {
  const Format a = Format::kE4M3, b = Format::kE5M2;
  EXPECT_EQ(encode(a, 464, Overflow::kNative), 0x7E);  // a tie, and 448 is even
  EXPECT_EQ(encode(a, 464.5f, Overflow::kNative), 0x7F);
  EXPECT_EQ(encode(a, -464.5f, Overflow::kNative), 0xFF);
  EXPECT_EQ(encode(a, 464.5f), 0x7E);
  EXPECT_EQ(encode(b, 61439, Overflow::kNative), 0x7B);
  EXPECT_EQ(encode(b, 61440, Overflow::kNative), 0x7C);  // a tie, and the largest is odd
  EXPECT_EQ(encode(b, -61440), 0xFB);
  for (const Format format : kFormats) {
    const Layout l = layout(format);
    for (const float huge : {1e30f, std::numeric_limits<float>::max(), kInf}) {
      EXPECT_EQ(encode(format, huge), l.max_code);
      EXPECT_EQ(encode(format, -huge), 0x80 | l.max_code);
      EXPECT_EQ(encode(format, huge, Overflow::kNative), l.overflow_code);
      EXPECT_EQ(encode(format, -huge, Overflow::kNative), 0x80 | l.overflow_code);
    }
    for (const Overflow overflow : {Overflow::kSaturate, Overflow::kNative}) {
      EXPECT_EQ(encode(format, kNan, overflow), 0x7F);
      EXPECT_EQ(encode(format, -kNan, overflow), 0xFF);
    }
  }
}

TEST(Formats, ZerosAndTheTiniestKeepTheirSign) {
  for (const Format format : kFormats) {
    EXPECT_EQ(encode(format, 0.0f), 0x00);
    EXPECT_EQ(encode(format, -0.0f), 0x80);
    EXPECT_EQ(encode(format, std::numeric_limits<float>::denorm_min()), 0x00);
    EXPECT_EQ(encode(format, -std::numeric_limits<float>::denorm_min()), 0x80);
  }
}

TEST(Incidents, Classified) {
  for (const Format format : kFormats) {
    const float largest = max_value(format), smallest = decode(format, 1);
    for (const float sign : {1.0f, -1.0f}) {
      const auto kind = [&](float x) { return classify(format, sign * x); };
      EXPECT_EQ(kind(kNan), Incident::kNan);
      EXPECT_EQ(kind(kInf), Incident::kInf);
      EXPECT_EQ(kind(0), Incident::kNone);
      EXPECT_EQ(kind(1), Incident::kNone);
      EXPECT_EQ(kind(largest), Incident::kNone);
      EXPECT_EQ(kind(std::nextafter(largest, kInf)), Incident::kNone);
      EXPECT_EQ(kind(largest * 2), Incident::kSaturated);
      EXPECT_EQ(kind(std::numeric_limits<float>::max()), Incident::kSaturated);
      EXPECT_EQ(kind(smallest), Incident::kNone);
      EXPECT_EQ(kind(smallest / 2), Incident::kUnderflowed);
      EXPECT_EQ(kind(std::nextafter(smallest / 2, kInf)), Incident::kNone);
      EXPECT_EQ(kind(std::numeric_limits<float>::denorm_min()), Incident::kUnderflowed);
    }
  }
  EXPECT_EQ(classify(Format::kE4M3, 464), Incident::kNone);
  EXPECT_EQ(classify(Format::kE4M3, std::nextafter(464.0f, kInf)), Incident::kSaturated);
  EXPECT_EQ(classify(Format::kE5M2, std::nextafter(61440.0f, 0.0f)), Incident::kNone);
  EXPECT_EQ(classify(Format::kE5M2, 61440), Incident::kSaturated);
}

TEST(Incidents, CountedOverArraysAndAddedUp) {
  const std::vector<float> values = {1, kNan, -kInf, kInf, 1e9f, -1e9f, 1e8f, 1e-9f, 0, -2, -kNan};
  for (const Format format : kFormats) {
    std::vector<uint8_t> codes(values.size());
    Incidents incidents;
    encode(format, values, codes, Overflow::kSaturate, incidents);
    EXPECT_EQ(incidents, (Incidents{.nan = 2, .inf = 2, .saturated = 3, .underflowed = 1}));
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(codes[i], encode(format, values[i]));

    encode(format, values, codes, Overflow::kNative, incidents);
    EXPECT_EQ(incidents, (Incidents{.nan = 4, .inf = 4, .saturated = 6, .underflowed = 2}));
    incidents += Incidents{.nan = 1, .inf = 2, .saturated = 3, .underflowed = 4};
    EXPECT_EQ(incidents, (Incidents{.nan = 5, .inf = 6, .saturated = 9, .underflowed = 6}));
    std::vector<float> back(values.size());
    decode(format, codes, back);
    EXPECT_TRUE(std::isnan(back[1]));
    EXPECT_EQ(back[9], -2);
  }
}

}  // namespace
}  // namespace octavo::fp8

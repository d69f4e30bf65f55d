#pragma once
// The eight-bit formats: E4M3 and E5M2 for values, E8M0 for scales; and NVFP4's four bits, which
// take a byte here. This is the reference: plain loops that define every bit. The SIMD quantizers
// of src/engine must give the same codes.
//
// clang-format off
//         sign  exponent  mantissa  bias  largest  smallest  infinity  NaN
//   E4M3  1     4         3         7     448      2^-9      none      0x7F 0xFF (the "fn" variant)
//   E5M2  1     5         2         15    57344    2^-16     0x7C      0x7D-0x7F (as IEEE)
//   E2M1  1     2         1         1     6        0.5       none      none: +6 is written
//   E8M0  0     8         0         127   2^127    2^-127    none      0xFF (and no zero)
// clang-format on
//
// The codes of one sign are consecutive integers in the order of their values, through subnormals
// and normals alike. So rounding is: find the code at or below |x| and the fraction of the way to
// the next code, then add one or not.

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace octavo::fp8 {

// E2M1's sign is in the highest bit of its byte, as the others' is; packed() in nvfp4.h makes
// nibbles.
enum class Format : uint8_t { kE4M3, kE5M2, kE2M1 };

// What a format is made of; everything below follows from it. Codes are without the sign bit.
struct Layout {
  int mantissa_bits;
  int bias;
  uint8_t max_code;       // the largest finite value
  uint8_t overflow_code;  // what a value beyond it becomes in the format itself
  uint8_t nan_code;       // the NaN that encoders write: torch's. CUDA's has the sign dropped
};
constexpr Layout layout(Format format) {
  switch (format) {
    case Format::kE4M3:
      return {3, 7, 0x7E, 0x7F, 0x7F};
    case Format::kE5M2:
      return {2, 15, 0x7B, 0x7C, 0x7F};
    case Format::kE2M1:
      break;
  }
  return {1, 1, 7, 7, 7};
}

// Where values that round past the largest finite one go, infinities included. kSaturate: to the
// largest finite value, what training uses and what the hardware does when quantizing. kNative:
// to the format's own answer, NaN in E4M3 and infinity in E5M2. NaN stays NaN in both.
enum class Overflow : uint8_t { kSaturate, kNative };

// What is lost when a value is encoded. Seen on the input: after saturation an infinity looks like
// any large value. Judged by round to nearest even, also where rounding is stochastic, so that the
// counts do not depend on the draw.
enum class Incident : uint8_t {
  kNone,
  kNan,
  kInf,
  kSaturated,    // finite, and rounds past the largest value (448.01 does not: it rounds to 448)
  kUnderflowed,  // not zero, and rounds to zero
};

struct Incidents {
  int64_t nan = 0, inf = 0, saturated = 0, underflowed = 0;

  void add(Incident incident);
  Incidents& operator+=(const Incidents& other);
  bool operator==(const Incidents&) const = default;
};

namespace detail {

// Exact: float32 has every value, as a normal number. NaN codes give the quiet NaN of their sign.
constexpr float value_of_code(Format format, uint8_t code) {
  const Layout l = layout(format);
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7F;
  if (magnitude > l.max_code) {
    const bool infinite = format == Format::kE5M2 && magnitude == l.overflow_code;
    return std::bit_cast<float>(sign | (infinite ? 0x7F800000u : 0x7FC00000u));
  }
  const uint32_t exponent = magnitude >> l.mantissa_bits;
  const uint32_t mantissa = magnitude & ((1u << l.mantissa_bits) - 1);
  const uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << l.mantissa_bits);
  // A power of two from its bits; the product of it and a small integer is exact.
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - l.bias - l.mantissa_bits;
  const float unit = std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
  const float value = static_cast<float>(significand) * unit;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

constexpr std::array<float, 256> values_of(Format format) {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < 256; ++code)
    values[code] = value_of_code(format, static_cast<uint8_t>(code));
  return values;
}

}  // namespace detail

// The value of every code.
inline constexpr std::array<float, 256> kE4M3Values = detail::values_of(Format::kE4M3);
inline constexpr std::array<float, 256> kE5M2Values = detail::values_of(Format::kE5M2);

inline constexpr std::array<float, 256> kE2M1ByteValues = detail::values_of(Format::kE2M1);

constexpr float decode(Format format, uint8_t code) {
  switch (format) {
    case Format::kE4M3:
      return kE4M3Values[code];
    case Format::kE5M2:
      return kE5M2Values[code];
    case Format::kE2M1:
      break;
  }
  return kE2M1ByteValues[code];
}
// The largest finite value: 448, 57344 or 6.
constexpr float max_value(Format format) {
  return decode(format, layout(format).max_code);
}

// Round to nearest, ties to the even code. The sign of zeros and NaN is kept.
uint8_t encode(Format format, float value, Overflow overflow = Overflow::kSaturate);
// The same of a BF16 value, given as its bits: exact, for BF16 is the upper half of a float32.
uint8_t encode_bf16(Format format, uint16_t bits, Overflow overflow = Overflow::kSaturate);

// Stochastic rounding: with f the fraction of the way from the code at or below |value| to the
// next, the next is taken when random_bits < floor(f * 2^32). Uniform bits make the mean of the
// decoded codes equal to the value: exactly while f is a multiple of 2^-32, which holds for |value|
// from 2^-9 of the smallest subnormal upwards, and below that to within 2^-32 of the smallest
// subnormal. Always saturates; what is beyond the largest value, infinity too, becomes it.
uint8_t encode_stochastic(Format format, float value, uint32_t random_bits);

Incident classify(Format format, float value);

// Whole arrays; `codes` has the size of `values`. Incidents are added to what `incidents` holds.
void encode(Format format, std::span<const float> values, std::span<uint8_t> codes,
            Overflow overflow, Incidents& incidents);
// Element i of `values` is element n = first + i of the tensor and uses word n % 4 of
// philox(seed, stream, n / 4): a number of its own, the same however the tensor is cut up.
struct RandomPosition {
  uint64_t seed = 0, stream = 0, first = 0;
};
void encode_stochastic(Format format, std::span<const float> values, std::span<uint8_t> codes,
                       const RandomPosition& draw, Incidents& incidents);
void decode(Format format, std::span<const uint8_t> codes, std::span<float> values);

// E8M0, a scale that is a power of two: code b is 2^(b - 127), 255 is NaN.
inline constexpr uint8_t kE8M0Nan = 255;
inline constexpr uint8_t kE8M0Max = 254;

constexpr float decode_e8m0(uint8_t code) {
  // 2^-127 is a float32 subnormal, the only code that is.
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  return std::bit_cast<float>(code == kE8M0Nan ? 0x7FC00000u : bits);
}
// The smallest power of two at or above a positive value, and the largest at or below it. Values
// out of range, infinity and zero too, go to the nearest end (2^127, 2^-127); NaN and negative
// values give NaN.
uint8_t encode_e8m0_up(float value);
uint8_t encode_e8m0_down(float value);

}  // namespace octavo::fp8

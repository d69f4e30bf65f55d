#include "fp8/formats.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/random.h"

namespace octavo::fp8 {
namespace {

constexpr uint32_t kSignBit = 0x80000000;
constexpr uint32_t kInfinity = 0x7F800000;
constexpr uint32_t kHalf = 0x80000000;  // as a 0.32 fixed-point fraction

// |x| between two neighbouring codes: `below` is the one at or below it, and `fraction` the way to
// the next in 1/2^32, rounded down. `below` continues counting past the largest code of the format.
struct Bracket {
  uint32_t below;
  uint32_t fraction;
};

// `magnitude`: the bits of a finite |x|.
template <Format kFormat>
Bracket bracket(uint32_t magnitude) {
  constexpr Layout kLayout = layout(kFormat);
  constexpr int kMinExponent = 127 - kLayout.bias + 1;  // of the smallest normal, as float32 has it
  // Zero and the subnormals of float32 have no implicit one, but all their bits are lost below.
  const int exponent = static_cast<int>(magnitude >> 23);
  const uint32_t significand = (magnitude & 0x007FFFFF) | 0x00800000;
  // Bits of the significand that are worth less than one step between codes: more of them in
  // subnormals, where the step stays and the exponent falls. At least 20, at most 141.
  const int lost = 23 - kLayout.mantissa_bits + std::max(kMinExponent - exponent, 0);
  const int binade = std::max(exponent - kMinExponent, 0);
  if (lost < 32)
    return {(significand >> lost) + (static_cast<uint32_t>(binade) << kLayout.mantissa_bits),
            significand << (32 - lost)};
  return {0, lost < 64 ? significand >> (lost - 32) : 0};
}

template <Format kFormat>
uint32_t nearest_code(uint32_t magnitude) {
  const Bracket at = bracket<kFormat>(magnitude);
  // A fraction that was rounded down is below 2^-8, so a tie is seen as one.
  const bool up = at.fraction > kHalf || (at.fraction == kHalf && (at.below & 1) != 0);
  return at.below + (up ? 1 : 0);
}

uint8_t with_sign(uint32_t code, uint32_t bits) {
  return static_cast<uint8_t>(code | ((bits & kSignBit) >> 24));
}

// E2M1 has no NaN: the hardware writes its largest value, without the sign.
template <Format kFormat>
uint8_t nan_of(uint32_t bits) {
  constexpr Layout kLayout = layout(kFormat);
  return kFormat == Format::kE2M1 ? kLayout.max_code : with_sign(kLayout.nan_code, bits);
}

// Calls body with the format as a constant.
template <class Body>
auto with_format(Format format, const Body& body) {
  switch (format) {
    case Format::kE4M3:
      return body(std::integral_constant<Format, Format::kE4M3>());
    case Format::kE5M2:
      return body(std::integral_constant<Format, Format::kE5M2>());
    case Format::kE2M1:
      break;
  }
  return body(std::integral_constant<Format, Format::kE2M1>());
}

template <Format kFormat>
uint8_t encode_one(float value, Overflow overflow) {
  constexpr Layout kLayout = layout(kFormat);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfinity) return nan_of<kFormat>(bits);
  const uint8_t beyond = overflow == Overflow::kSaturate ? kLayout.max_code : kLayout.overflow_code;
  if (magnitude == kInfinity) return with_sign(beyond, bits);
  const uint32_t code = nearest_code<kFormat>(magnitude);
  return with_sign(code > kLayout.max_code ? beyond : code, bits);
}

template <Format kFormat>
uint8_t encode_one_stochastic(float value, uint32_t random_bits) {
  constexpr Layout kLayout = layout(kFormat);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfinity) return nan_of<kFormat>(bits);
  if (magnitude == kInfinity) return with_sign(kLayout.max_code, bits);
  const Bracket at = bracket<kFormat>(magnitude);
  const uint32_t code = at.below + (random_bits < at.fraction ? 1 : 0);
  return with_sign(std::min<uint32_t>(code, kLayout.max_code), bits);
}

template <Format kFormat>
Incident classify_one(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & ~kSignBit;
  if (magnitude > kInfinity) return Incident::kNan;
  if (magnitude == kInfinity) return Incident::kInf;
  const uint32_t code = nearest_code<kFormat>(magnitude);
  if (code > layout(kFormat).max_code) return Incident::kSaturated;
  return code == 0 && magnitude != 0 ? Incident::kUnderflowed : Incident::kNone;
}

template <Format kFormat>
void encode_all(std::span<const float> values, std::span<uint8_t> codes, Overflow overflow,
                Incidents& incidents) {
  for (size_t i = 0; i < values.size(); ++i) {
    incidents.add(classify_one<kFormat>(values[i]));
    codes[i] = encode_one<kFormat>(values[i], overflow);
  }
}

template <Format kFormat>
void encode_all_stochastic(std::span<const float> values, std::span<uint8_t> codes,
                           const RandomPosition& draw, Incidents& incidents) {
  std::array<uint32_t, 4> block{};
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t element = draw.first + i;
    if (i == 0 || element % 4 == 0) block = philox(draw.seed, draw.stream, element / 4);
    incidents.add(classify_one<kFormat>(values[i]));
    codes[i] = encode_one_stochastic<kFormat>(values[i], block[element % 4]);
  }
}

// The code of what has no power of two near it: NaN, negative values, infinity.
std::optional<uint8_t> e8m0_special(uint32_t bits) {
  if ((bits & ~kSignBit) > kInfinity || bits > kSignBit) return kE8M0Nan;
  if (bits == kInfinity) return kE8M0Max;
  return std::nullopt;
}

}  // namespace

void Incidents::add(Incident incident) {
  nan += incident == Incident::kNan;
  inf += incident == Incident::kInf;
  saturated += incident == Incident::kSaturated;
  underflowed += incident == Incident::kUnderflowed;
}

Incidents& Incidents::operator+=(const Incidents& other) {
  nan += other.nan;
  inf += other.inf;
  saturated += other.saturated;
  underflowed += other.underflowed;
  return *this;
}

uint8_t encode(Format format, float value, Overflow overflow) {
  return with_format(format, [&](auto f) { return encode_one<f>(value, overflow); });
}

uint8_t encode_bf16(Format format, uint16_t bits, Overflow overflow) {
  return encode(format, std::bit_cast<float>(static_cast<uint32_t>(bits) << 16), overflow);
}

uint8_t encode_stochastic(Format format, float value, uint32_t random_bits) {
  return with_format(format, [&](auto f) { return encode_one_stochastic<f>(value, random_bits); });
}

Incident classify(Format format, float value) {
  return with_format(format, [&](auto f) { return classify_one<f>(value); });
}

void encode(Format format, std::span<const float> values, std::span<uint8_t> codes,
            Overflow overflow, Incidents& incidents) {
  OCTAVO_ASSERT(values.size() == codes.size());
  with_format(format, [&](auto f) { encode_all<f>(values, codes, overflow, incidents); });
}

void encode_stochastic(Format format, std::span<const float> values, std::span<uint8_t> codes,
                       const RandomPosition& draw, Incidents& incidents) {
  OCTAVO_ASSERT(values.size() == codes.size());
  with_format(format, [&](auto f) { encode_all_stochastic<f>(values, codes, draw, incidents); });
}

void decode(Format format, std::span<const uint8_t> codes, std::span<float> values) {
  OCTAVO_ASSERT(values.size() == codes.size());
  for (size_t i = 0; i < codes.size(); ++i) values[i] = decode(format, codes[i]);
}

uint8_t encode_e8m0_up(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (const auto special = e8m0_special(bits)) return *special;
  const uint32_t exponent = (bits & kInfinity) >> 23, mantissa = bits & 0x007FFFFF;
  // Without an implicit one, the power of two in the lowest binade is its half: 2^-127.
  const uint32_t power = exponent == 0 ? 0x00400000u : 0u;
  return static_cast<uint8_t>(std::min<uint32_t>(exponent + (mantissa > power ? 1 : 0), kE8M0Max));
}

uint8_t encode_e8m0_down(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (const auto special = e8m0_special(bits)) return *special;
  return static_cast<uint8_t>((bits & kInfinity) >> 23);
}

}  // namespace octavo::fp8

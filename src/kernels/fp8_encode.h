#pragma once
// Rounding to E4M3 and E5M2 for kernels: the codes of fp8::encode(), saturating.

#include "fp8/formats.h"
#include "kernels/portable.h"

namespace octavo::kernels {

// Round to nearest even. With 2^k the binade of |value| (at least the smallest normal's), |value| +
// 2^(k + lost) is rounded by the addition to a multiple of the step between codes there, and the
// low bits of the sum count the steps.
template <fp8::Format kFormat>
OCTAVO_ON_BOTH inline uint8_t encode_nearest(float value) {
  constexpr fp8::Layout kLayout = fp8::layout(kFormat);
  constexpr auto kLost = static_cast<uint32_t>(23 - kLayout.mantissa_bits);
  constexpr uint32_t kFirstNormal = static_cast<uint32_t>(128 - kLayout.bias) << 23;
  constexpr uint32_t kMax = std::bit_cast<uint32_t>(fp8::max_value(kFormat));
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFF;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude > 0x7F800000) return static_cast<uint8_t>(kLayout.nan_code | sign);
  if (magnitude >= kMax) return static_cast<uint8_t>(kLayout.max_code | sign);
  const uint32_t exponent = magnitude & 0x7F800000;
  const uint32_t binade = exponent > kFirstNormal ? exponent : kFirstNormal;
  const uint32_t offset = binade + (kLost << 23);
  const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(offset);
  const uint32_t steps = std::bit_cast<uint32_t>(sum) - offset;
  return static_cast<uint8_t>(((binade - kFirstNormal) >> kLost) + steps) |
         static_cast<uint8_t>(sign);
}

template <fp8::Format kFormat>
OCTAVO_ON_BOTH inline float decode_code(uint8_t code) {
  return fp8::detail::value_of_code(kFormat, code);
}

}  // namespace octavo::kernels

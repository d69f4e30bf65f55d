// Rounding to the formats of fp8/formats.h in FP32 lanes, and back. No #pragma once: Highway
// includes this again for each instruction set.

#if defined(OCTAVO_ENGINE_CPU_FP8_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ENGINE_CPU_FP8_ROUND_INL_H_
#undef OCTAVO_ENGINE_CPU_FP8_ROUND_INL_H_
#else
#define OCTAVO_ENGINE_CPU_FP8_ROUND_INL_H_
#endif

#include "engine/cpu/simd-inl.h"
#include "fp8/formats.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

using VU = hn::Vec<U32>;
using U8Quarter = hn::Rebind<uint8_t, F32>;

// The numbers that describe a format to the functions below.
template <fp8::Format kFormat>
struct Fp8Lanes {
  static constexpr fp8::Layout kLayout = fp8::layout(kFormat);
  static constexpr int kLost = 23 - kLayout.mantissa_bits;  // mantissa bits that a code lacks
  static constexpr uint32_t kMinExponent = (128u - kLayout.bias) << 23;  // of the smallest normal
  static constexpr float kMax = fp8::max_value(kFormat);
};

struct Rounded {
  VF value;  // with the sign
  VU code;   // with the sign bit
};

// Round to nearest even, of numbers that do not round past the largest value. With 2^k the binade
// of |v| (at least the smallest normal's), |v| + 2^(k + kLost) is rounded by the addition to a
// multiple of the step between codes there; what was added comes off again exactly, and the sum's
// low bits count the steps. A zero may lose its sign in the value, not in the code.
template <fp8::Format kFormat>
HWY_INLINE Rounded round_safe(F32 d, VF v) {
  using L = Fp8Lanes<kFormat>;
  const U32 du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto binade =
      hn::Max(hn::And(bits, hn::Set(du, 0x7F800000u)), hn::Set(du, L::kMinExponent));
  const auto offset =
      hn::Or(hn::Add(binade, hn::Set(du, static_cast<uint32_t>(L::kLost) << 23)), sign);
  const VF sum = hn::Add(v, hn::BitCast(d, offset));
  const auto steps = hn::Sub(hn::BitCast(du, sum), offset);
  const auto first = hn::ShiftRight<L::kLost>(hn::Sub(binade, hn::Set(du, L::kMinExponent)));
  return {hn::Sub(sum, hn::BitCast(d, offset)),
          hn::Or(hn::Add(first, steps), hn::ShiftRight<24>(sign))};
}

// The same of any value: saturating, NaN kept, zeros with their sign.
template <fp8::Format kFormat>
HWY_INLINE Rounded round_to(F32 d, VF v) {
  using L = Fp8Lanes<kFormat>;
  const U32 du;
  const auto sign = hn::And(hn::BitCast(du, v), hn::Set(du, 0x80000000u));
  const VF signs = hn::BitCast(d, sign);
  const Rounded number =
      round_safe<kFormat>(d, hn::Or(hn::Min(hn::Abs(v), hn::Set(d, L::kMax)), signs));
  const auto nan = hn::IsNaN(v);
  const auto nan_code = hn::Or(hn::Set(du, L::kLayout.nan_code), hn::ShiftRight<24>(sign));
  return {hn::Or(hn::IfThenElse(nan, v, number.value), signs),
          hn::IfThenElse(hn::RebindMask(du, nan), nan_code, number.code)};
}

template <fp8::Format kFormat>
HWY_INLINE VF value_of(F32 d, VU code) {
  using L = Fp8Lanes<kFormat>;
  const U32 du;
  const hn::RebindToSigned<F32> di;
  const auto magnitude = hn::And(code, hn::Set(du, 0x7F));
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80)));
  constexpr uint32_t kBias = (127u - L::kLayout.bias) << 23;
  const auto normal = hn::Add(hn::ShiftLeft<L::kLost>(magnitude), hn::Set(du, kBias));
  // Codes below the first normal count steps of the smallest subnormal.
  constexpr float kStep = fp8::decode(kFormat, 1);
  const VF small = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, kStep));
  VF value = hn::IfThenElse(
      hn::RebindMask(d, hn::Lt(magnitude, hn::Set(du, 1u << L::kLayout.mantissa_bits))), small,
      hn::BitCast(d, normal));
  const auto special = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(du, L::kLayout.max_code)));
  const bool has_infinity = kFormat == fp8::Format::kE5M2;
  const auto infinite = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(du, L::kLayout.overflow_code)));
  value = hn::IfThenElse(special, hn::BitCast(d, hn::Set(du, 0x7FC00000u)), value);
  if (has_infinity)
    value = hn::IfThenElse(infinite, hn::BitCast(d, hn::Set(du, 0x7F800000u)), value);
  return hn::Or(value, hn::BitCast(d, sign));
}

// An FP32 value whose lower half is zero, or a NaN, as BF16: nothing to round.
HWY_INLINE void store_exact(VF v, F32, Bf16* p) {
  const U32 du;
  hn::StoreU(hn::TruncateTo(U16Half(), hn::ShiftRight<16>(hn::BitCast(du, v))), U16Half(), p);
}

HWY_INLINE void store_codes(VU code, F32 d, uint8_t* p, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d))) {
    hn::StoreU(hn::TruncateTo(U8Quarter(), code), U8Quarter(), p);
    return;
  }
  HWY_ALIGN uint32_t buffer[hn::MaxLanes(U32())];
  hn::Store(code, U32(), buffer);
  for (size_t i = 0; i < count; ++i) p[i] = static_cast<uint8_t>(buffer[i]);
}

HWY_INLINE void store_values(VF value, F32 d, uint16_t* p, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d)))
    store_exact(value, d, p);
  else
    store_n(value, d, p, count);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

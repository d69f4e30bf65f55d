// Loads and stores of BF16 and FP32 as FP32 vectors, for files compiled once per instruction set by
// Highway. No #pragma once: Highway includes this again for each target.

#if defined(OCTAVO_ENGINE_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ENGINE_CPU_SIMD_INL_H_
#undef OCTAVO_ENGINE_CPU_SIMD_INL_H_
#else
#define OCTAVO_ENGINE_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16Half = hn::Rebind<uint16_t, F32>;

// BF16 values travel as their bits in uint16_t.
using Bf16 = uint16_t;

HWY_INLINE VF load(F32 d, const float* p) {
  return hn::LoadU(d, p);
}

HWY_INLINE VF load(F32 d, const Bf16* p) {
  const auto bits = hn::PromoteTo(U32(), hn::LoadU(U16Half(), p));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

HWY_INLINE void store(VF v, F32 d, float* p) {
  hn::StoreU(v, d, p);
}

// Round to nearest even; NaN stays NaN (its payload's top bit is set so that truncation cannot make
// an infinity).
HWY_INLINE void store(VF v, F32, Bf16* p) {
  const U32 du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(U16Half(), hn::ShiftRight<16>(result)), U16Half(), p);
}

// The value as it will be read back after a store to T: what later computation must see.
HWY_INLINE VF rounded_as(VF v, F32, const float*) {
  return v;
}
HWY_INLINE VF rounded_as(VF v, F32 d, const Bf16*) {
  const U32 du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  return hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xFFFF0000)));
}

inline float to_float(float v) {
  return v;
}
inline float to_float(Bf16 v) {
  const uint32_t bits = uint32_t{v} << 16;
  float result;
  __builtin_memcpy(&result, &bits, 4);
  return result;
}
inline void from_float(float v, float* p) {
  *p = v;
}
inline void from_float(float v, Bf16* p) {
  uint32_t bits;
  __builtin_memcpy(&bits, &v, 4);
  if (v != v)
    *p = static_cast<Bf16>((bits | 0x400000) >> 16);
  else
    *p = static_cast<Bf16>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Minimum, maximum and rounding would hide a NaN: the result where x is a number, else x.
HWY_INLINE VF unless_nan(VF x, VF result) {
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// Up to a vector's worth of values at the end of a row; lanes beyond `count` hold `fill`.
template <typename T>
HWY_INLINE VF load_n(F32 d, const T* p, size_t count, float fill = 0) {
  HWY_ALIGN float buffer[hn::MaxLanes(F32())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) buffer[i] = i < count ? to_float(p[i]) : fill;
  return hn::Load(d, buffer);
}

template <typename T>
HWY_INLINE void store_n(VF v, F32 d, T* p, size_t count) {
  HWY_ALIGN float buffer[hn::MaxLanes(F32())];
  hn::Store(v, d, buffer);
  for (size_t i = 0; i < count; ++i) from_float(buffer[i], p + i);
}

// Calls body(offset, count) over [0, n): whole vectors first (count = lanes, a constant the
// compiler can see through `load_any`), then the rest.
template <class Body>
HWY_INLINE void for_vectors(size_t n, const Body& body) {
  const size_t lanes = hn::Lanes(F32());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}

template <typename T>
HWY_INLINE VF load_any(F32 d, const T* p, size_t count, float fill = 0) {
  return HWY_LIKELY(count == hn::Lanes(d)) ? load(d, p) : load_n(d, p, count, fill);
}

template <typename T>
HWY_INLINE void store_any(VF v, F32 d, T* p, size_t count) {
  if (HWY_LIKELY(count == hn::Lanes(d)))
    store(v, d, p);
  else
    store_n(v, d, p, count);
}

HWY_INLINE float sum_lanes(F32 d, VF v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}
// exp to about 2 ulp: range reduction to |r| <= ln(2)/2 and a polynomial of degree 6. Below -87.3
// the result is zero (the true one would be denormal or nearly so), above 88.3 it stays finite. NaN
// stays NaN.
HWY_INLINE VF fast_exp(F32 d, VF x) {
  const hn::RebindToSigned<F32> di;
  const VF clamped = hn::Min(hn::Max(x, hn::Set(d, -87.3f)), hn::Set(d, 88.3f));
  const auto n = hn::NearestInt(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  const VF nf = hn::ConvertTo(d, n);
  VF r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.3981999507e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(hn::Mul(r, r), p, hn::Add(r, hn::Set(d, 1.0f)));
  const VF scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(n)));
  return unless_nan(x, hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), scaled));
}

// 1 / x to about 1 ulp without the slow division: estimate and two Newton steps.
HWY_INLINE VF fast_reciprocal(F32 d, VF x) {
  const VF two = hn::Set(d, 2.0f);
  VF y = hn::ApproximateReciprocal(x);
  y = hn::Mul(y, hn::NegMulAdd(x, y, two));
  return hn::Mul(y, hn::NegMulAdd(x, y, two));
}

// 1 / (1 + exp(minus_x)), exactly 0 and 1 far out: a factor beside it may be huge.
HWY_INLINE VF sigmoid_of_minus(F32 d, VF minus_x) {
  const VF limit = hn::Set(d, 87.0f), one = hn::Set(d, 1.0f);  // exp overflows above 88
  const VF e = fast_exp(d, hn::Min(minus_x, limit));
  VF s = fast_reciprocal(d, hn::Add(one, e));
  // AVX2's estimate of 1 / 1 ends an ulp below 1. Above 17.4 1 + e is 1, and so is the sigmoid.
  s = hn::IfThenElse(hn::Lt(minus_x, hn::Set(d, -17.4f)), one, s);
  return hn::IfThenZeroElse(hn::Gt(minus_x, limit), s);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

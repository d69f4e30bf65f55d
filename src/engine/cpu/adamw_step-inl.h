// One step of AdamW in FP32 lanes, bit for bit as adamw::advance(). No #pragma once: Highway
// includes this again for each instruction set.

#if defined(OCTAVO_ENGINE_CPU_ADAMW_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_ENGINE_CPU_ADAMW_STEP_INL_H_
#undef OCTAVO_ENGINE_CPU_ADAMW_STEP_INL_H_
#else
#define OCTAVO_ENGINE_CPU_ADAMW_STEP_INL_H_
#endif

#include <cmath>

#include "engine/cpu/simd-inl.h"
#include "kernels/adamw_storage.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// a * b + c, rounded once. Instruction sets without it (x86 before 2013) are slow rather than
// different.
HWY_INLINE VF fused(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const F32 d;
  HWY_ALIGN float x[hn::MaxLanes(F32())], y[hn::MaxLanes(F32())], z[hn::MaxLanes(F32())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, x);
#endif
}

struct StepConstants {
  VF beta1, rest1, beta2, rest2, scale, keep, lr, eps;

  HWY_INLINE StepConstants(F32 d, const adamw::Factors& f)
      : beta1(hn::Set(d, f.beta1)),
        rest1(hn::Set(d, f.rest1)),
        beta2(hn::Set(d, f.beta2)),
        rest2(hn::Set(d, f.rest2)),
        scale(hn::Set(d, f.grad_scale)),
        keep(hn::Set(d, f.keep)),
        lr(hn::Set(d, f.lr_hat)),
        eps(hn::Set(d, f.eps_hat)) {}

  HWY_INLINE void advance(VF gradient, VF& w, VF& m, VF& v) const {
    const VF g = hn::Mul(gradient, scale);
    m = fused(m, beta1, hn::Mul(g, rest1));
    v = fused(v, beta2, hn::Mul(hn::Mul(g, g), rest2));
    w = hn::Sub(hn::Mul(w, keep), hn::Div(hn::Mul(lr, m), hn::Add(hn::Sqrt(v), eps)));
  }
};

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

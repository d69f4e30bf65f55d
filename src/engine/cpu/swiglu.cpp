// SwiGLU and GeGLU: what they do to the gate differs, the rest is the same.

#include <ATen/ATen.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// A gate's activation is g * share(g), and slope its derivative.
struct SiluGate {
  static HWY_INLINE VF share(F32 d, VF g) { return unless_nan(g, sigmoid_of_minus(d, hn::Neg(g))); }
  static HWY_INLINE VF slope(F32 d, VF g, VF s) {
    // d/dg [g s(g)] = s (1 + g (1 - s))
    const VF one = hn::Set(d, 1.0f);
    return hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
  }
};

struct GeluGate {  // the tanh form is g sigmoid(2u)
  static constexpr float kTwoSlope = 2 * 0.7978845608028654f, kTimesCube = 0.044715f;
  static HWY_INLINE VF share(F32 d, VF g) {
    const VF inner = hn::MulAdd(hn::Mul(g, g), hn::Set(d, kTimesCube), hn::Set(d, 1.0f));
    const VF minus_2u = hn::Mul(hn::Mul(g, inner), hn::Set(d, -kTwoSlope));
    return unless_nan(g, sigmoid_of_minus(d, minus_2u));
  }
  static HWY_INLINE VF slope(F32 d, VF g, VF s) {
    // d/dg [g s(2u)] = s + g s (1 - s) 2u'
    const VF one = hn::Set(d, 1.0f);
    const VF two_du =
        hn::Mul(hn::Set(d, kTwoSlope), hn::MulAdd(hn::Mul(g, g), hn::Set(d, 3 * kTimesCube), one));
    return hn::MulAdd(hn::Mul(g, hn::Mul(s, hn::Sub(one, s))), two_du, s);
  }
};

template <class Gate, typename T>
void gated_forward(const T* x, T* y, size_t n, size_t rows) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += 2 * n, y += n)
    for_vectors(n, [&](size_t i, size_t count) {
      const VF gate = load_any(d, x + i, count), up = load_any(d, x + n + i, count);
      store_any(hn::Mul(hn::Mul(gate, Gate::share(d, gate)), up), d, y + i, count);
    });
}

template <class Gate, typename T>
void gated_backward(const T* dy, const T* x, T* dx, size_t n, size_t rows) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, dy += n, x += 2 * n, dx += 2 * n)
    for_vectors(n, [&](size_t i, size_t count) {
      const VF gate = load_any(d, x + i, count), up = load_any(d, x + n + i, count);
      const VF grad = load_any(d, dy + i, count), s = Gate::share(d, gate);
      store_any(hn::Mul(hn::Mul(grad, up), Gate::slope(d, gate, s)), d, dx + i, count);
      store_any(hn::Mul(grad, hn::Mul(gate, s)), d, dx + n + i, count);
    });
}

void swiglu_forward_bf16(const uint16_t* x, uint16_t* y, size_t n, size_t rows) {
  gated_forward<SiluGate>(x, y, n, rows);
}
void swiglu_forward_f32(const float* x, float* y, size_t n, size_t rows) {
  gated_forward<SiluGate>(x, y, n, rows);
}
void swiglu_backward_bf16(const uint16_t* dy, const uint16_t* x, uint16_t* dx, size_t n,
                          size_t rows) {
  gated_backward<SiluGate>(dy, x, dx, n, rows);
}
void swiglu_backward_f32(const float* dy, const float* x, float* dx, size_t n, size_t rows) {
  gated_backward<SiluGate>(dy, x, dx, n, rows);
}
void geglu_forward_bf16(const uint16_t* x, uint16_t* y, size_t n, size_t rows) {
  gated_forward<GeluGate>(x, y, n, rows);
}
void geglu_forward_f32(const float* x, float* y, size_t n, size_t rows) {
  gated_forward<GeluGate>(x, y, n, rows);
}
void geglu_backward_bf16(const uint16_t* dy, const uint16_t* x, uint16_t* dx, size_t n,
                         size_t rows) {
  gated_backward<GeluGate>(dy, x, dx, n, rows);
}
void geglu_backward_f32(const float* dy, const float* x, float* dx, size_t n, size_t rows) {
  gated_backward<GeluGate>(dy, x, dx, n, rows);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(swiglu_forward_bf16);
HWY_EXPORT(swiglu_forward_f32);
HWY_EXPORT(swiglu_backward_bf16);
HWY_EXPORT(swiglu_backward_f32);
HWY_EXPORT(geglu_forward_bf16);
HWY_EXPORT(geglu_forward_f32);
HWY_EXPORT(geglu_backward_bf16);
HWY_EXPORT(geglu_backward_f32);

// Kernels of one activation, as HWY_DYNAMIC_DISPATCH gives them.
using ForwardBf16 = void (*)(const uint16_t*, uint16_t*, size_t, size_t);
using ForwardF32 = void (*)(const float*, float*, size_t, size_t);
using BackwardBf16 = void (*)(const uint16_t*, const uint16_t*, uint16_t*, size_t, size_t);
using BackwardF32 = void (*)(const float*, const float*, float*, size_t, size_t);

at::Tensor run_forward(const at::Tensor& x, ForwardBf16 bf16, ForwardF32 f32) {
  const int64_t n = x.size(1) / 2;
  at::Tensor y = at::empty({x.size(0), n}, x.options());
  for_parts(x.size(0), n, [&](int64_t, int64_t first, int64_t end) {
    const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
    if (x.scalar_type() == at::kBFloat16)
      bf16(data<uint16_t>(x) + 2 * first * n, mutable_data<uint16_t>(y) + first * n, width, rows);
    else
      f32(data<float>(x) + 2 * first * n, mutable_data<float>(y) + first * n, width, rows);
  });
  return y;
}

at::Tensor run_backward(const at::Tensor& dy, const at::Tensor& x, BackwardBf16 bf16,
                        BackwardF32 f32) {
  const int64_t n = x.size(1) / 2;
  at::Tensor dx = at::empty_like(x);
  for_parts(x.size(0), n, [&](int64_t, int64_t first, int64_t end) {
    const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
    if (x.scalar_type() == at::kBFloat16)
      bf16(data<uint16_t>(dy) + first * n, data<uint16_t>(x) + 2 * first * n,
           mutable_data<uint16_t>(dx) + 2 * first * n, width, rows);
    else
      f32(data<float>(dy) + first * n, data<float>(x) + 2 * first * n,
          mutable_data<float>(dx) + 2 * first * n, width, rows);
  });
  return dx;
}

struct SimdSwiGlu final : SwiGlu {
  at::Tensor forward(const at::Tensor& x) override {
    return run_forward(x, HWY_DYNAMIC_DISPATCH(swiglu_forward_bf16),
                       HWY_DYNAMIC_DISPATCH(swiglu_forward_f32));
  }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) override {
    return run_backward(dy, x, HWY_DYNAMIC_DISPATCH(swiglu_backward_bf16),
                        HWY_DYNAMIC_DISPATCH(swiglu_backward_f32));
  }
};

struct SimdGeGlu final : GeGlu {
  at::Tensor forward(const at::Tensor& x) override {
    return run_forward(x, HWY_DYNAMIC_DISPATCH(geglu_forward_bf16),
                       HWY_DYNAMIC_DISPATCH(geglu_forward_f32));
  }
  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) override {
    return run_backward(dy, x, HWY_DYNAMIC_DISPATCH(geglu_backward_bf16),
                        HWY_DYNAMIC_DISPATCH(geglu_backward_f32));
  }
};

}  // namespace

std::unique_ptr<SwiGlu> make_swiglu() {
  return std::make_unique<SimdSwiGlu>();
}
std::unique_ptr<GeGlu> make_geglu() {
  return std::make_unique<SimdGeGlu>();
}

}  // namespace octavo::engine::cpu
#endif

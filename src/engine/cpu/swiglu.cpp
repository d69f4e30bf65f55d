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

HWY_INLINE VF sigmoid(F32 d, VF x) {
  return unless_nan(x, sigmoid_of_minus(d, hn::Neg(x)));
}

template <typename T>
void swiglu_forward(const T* x, T* y, size_t n, size_t rows) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += 2 * n, y += n)
    for_vectors(n, [&](size_t i, size_t count) {
      const VF gate = load_any(d, x + i, count), up = load_any(d, x + n + i, count);
      store_any(hn::Mul(hn::Mul(gate, sigmoid(d, gate)), up), d, y + i, count);
    });
}

template <typename T>
void swiglu_backward(const T* dy, const T* x, T* dx, size_t n, size_t rows) {
  const F32 d;
  const VF one = hn::Set(d, 1.0f);
  for (size_t r = 0; r < rows; ++r, dy += n, x += 2 * n, dx += 2 * n)
    for_vectors(n, [&](size_t i, size_t count) {
      const VF gate = load_any(d, x + i, count), up = load_any(d, x + n + i, count);
      const VF grad = load_any(d, dy + i, count), s = sigmoid(d, gate);
      // d/dg [g s(g)] = s (1 + g (1 - s))
      const VF slope = hn::Mul(s, hn::MulAdd(gate, hn::Sub(one, s), one));
      store_any(hn::Mul(hn::Mul(grad, up), slope), d, dx + i, count);
      store_any(hn::Mul(grad, hn::Mul(gate, s)), d, dx + n + i, count);
    });
}

void swiglu_forward_bf16(const uint16_t* x, uint16_t* y, size_t n, size_t rows) {
  swiglu_forward(x, y, n, rows);
}
void swiglu_forward_f32(const float* x, float* y, size_t n, size_t rows) {
  swiglu_forward(x, y, n, rows);
}
void swiglu_backward_bf16(const uint16_t* dy, const uint16_t* x, uint16_t* dx, size_t n,
                          size_t rows) {
  swiglu_backward(dy, x, dx, n, rows);
}
void swiglu_backward_f32(const float* dy, const float* x, float* dx, size_t n, size_t rows) {
  swiglu_backward(dy, x, dx, n, rows);
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

struct SimdSwiGlu final : SwiGlu {
  at::Tensor forward(const at::Tensor& x) override {
    const int64_t n = x.size(1) / 2;
    at::Tensor y = at::empty({x.size(0), n}, x.options());
    for_parts(x.size(0), [&](int64_t, int64_t first, int64_t end) {
      const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
      if (x.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(swiglu_forward_bf16)
      (data<uint16_t>(x) + 2 * first * n, mutable_data<uint16_t>(y) + first * n, width, rows);
      else HWY_DYNAMIC_DISPATCH(swiglu_forward_f32)(
          data<float>(x) + 2 * first * n, mutable_data<float>(y) + first * n, width, rows);
    });
    return y;
  }

  at::Tensor backward(const at::Tensor& dy, const at::Tensor& x) override {
    const int64_t n = x.size(1) / 2;
    at::Tensor dx = at::empty_like(x);
    for_parts(x.size(0), [&](int64_t, int64_t first, int64_t end) {
      const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
      if (x.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(swiglu_backward_bf16)
      (data<uint16_t>(dy) + first * n, data<uint16_t>(x) + 2 * first * n,
       mutable_data<uint16_t>(dx) + 2 * first * n, width, rows);
      else HWY_DYNAMIC_DISPATCH(swiglu_backward_f32)(
          data<float>(dy) + first * n, data<float>(x) + 2 * first * n,
          mutable_data<float>(dx) + 2 * first * n, width, rows);
    });
    return dx;
  }
};

}  // namespace

std::unique_ptr<SwiGlu> make_swiglu() {
  return std::make_unique<SimdSwiGlu>();
}

}  // namespace octavo::engine::cpu
#endif

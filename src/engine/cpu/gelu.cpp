#include <ATen/ATen.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/gelu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

constexpr float kSqrt2OverPi = 0.7978845608028654f, kCubic = 0.044715f;

// 0.5 x (1 + tanh(u)) = x * sigmoid(2u): one exponential, no cancellation.
HWY_INLINE VF sigmoid_2u(F32 d, VF x) {
  const VF inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, 1.0f));
  const VF minus_2u = hn::Mul(hn::Mul(x, inner), hn::Set(d, -2 * kSqrt2OverPi));
  return sigmoid_of_minus(d, minus_2u);
}

template <typename T>
void forward_range(const T* x, T* y, size_t n) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) {
    const VF v = load_any(d, x + i, count);
    store_any(hn::Mul(v, sigmoid_2u(d, v)), d, y + i, count);
  });
}

template <typename T>
void backward_rows(T* dy, const T* x, size_t n, size_t rows, float* dbias) {
  const F32 d;
  const VF one = hn::Set(d, 1.0f);
  for (size_t r = 0; r < rows; ++r, dy += n, x += n) {
    for_vectors(n, [&](size_t i, size_t count) {
      const VF v = load_any(d, x + i, count);
      const VF s = sigmoid_2u(d, v);
      // d/dx [x s(2u)] = s + x s (1 - s) 2u'
      const VF two_du = hn::Mul(hn::Set(d, 2 * kSqrt2OverPi),
                                hn::MulAdd(hn::Mul(v, v), hn::Set(d, 3 * kCubic), one));
      const VF slope = hn::MulAdd(hn::Mul(v, hn::Mul(s, hn::Sub(one, s))), two_du, s);
      const VF out = rounded_as(hn::Mul(load_any(d, dy + i, count), slope), d, x);
      store_any(out, d, dy + i, count);
      store_any(hn::Add(load_any(d, dbias + i, count), out), d, dbias + i, count);
    });
  }
}

template <typename T>
void sum_rows(const T* x, size_t n, size_t rows, float* sums) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += n)
    for_vectors(n, [&](size_t i, size_t count) {
      store_any(hn::Add(load_any(d, sums + i, count), load_any(d, x + i, count)), d, sums + i,
                count);
    });
}

void forward_bf16(const uint16_t* x, uint16_t* y, size_t n) {
  forward_range(x, y, n);
}
void forward_f32(const float* x, float* y, size_t n) {
  forward_range(x, y, n);
}
void backward_bf16(uint16_t* dy, const uint16_t* x, size_t n, size_t rows, float* dbias) {
  backward_rows(dy, x, n, rows, dbias);
}
void backward_f32(float* dy, const float* x, size_t n, size_t rows, float* dbias) {
  backward_rows(dy, x, n, rows, dbias);
}
void sum_bf16(const uint16_t* x, size_t n, size_t rows, float* sums) {
  sum_rows(x, n, rows, sums);
}
void sum_f32(const float* x, size_t n, size_t rows, float* sums) {
  sum_rows(x, n, rows, sums);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(forward_bf16);
HWY_EXPORT(forward_f32);
HWY_EXPORT(backward_bf16);
HWY_EXPORT(backward_f32);
HWY_EXPORT(sum_bf16);
HWY_EXPORT(sum_f32);

struct SimdGelu final : Gelu {
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = at::empty_like(x);
    const int64_t n = x.numel();
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
      const auto count = static_cast<size_t>(end - begin);
      if (x.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(forward_bf16)
      (data<uint16_t>(x) + begin, mutable_data<uint16_t>(y) + begin, count);
      else HWY_DYNAMIC_DISPATCH(forward_f32)(data<float>(x) + begin, mutable_data<float>(y) + begin,
                                             count);
    });
    return y;
  }

  void backward(at::Tensor& dy, const at::Tensor& x, at::Tensor& dbias, Accumulate mode) override {
    const int64_t n = x.size(1), parts = part_count(x.size(0));
    at::Tensor partial = at::zeros({parts, n}, dbias.options());
    float* sums = partial.mutable_data_ptr<float>();
    for_parts(x.size(0), n, [&](int64_t part, int64_t first, int64_t end) {
      const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
      if (x.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(backward_bf16)
      (mutable_data<uint16_t>(dy) + first * n, data<uint16_t>(x) + first * n, width, rows,
       sums + part * n);
      else HWY_DYNAMIC_DISPATCH(backward_f32)(mutable_data<float>(dy) + first * n,
                                              data<float>(x) + first * n, width, rows,
                                              sums + part * n);
    });
    reduce_parts(sums, parts, n, dbias, mode);
  }
};

struct SimdColumnSum final : ColumnSum {
  void add(const at::Tensor& x, at::Tensor& sums, Accumulate mode) override {
    const int64_t n = x.size(1), parts = part_count(x.size(0));
    at::Tensor partial = at::zeros({parts, n}, sums.options());
    float* p = partial.mutable_data_ptr<float>();
    for_parts(x.size(0), n, [&](int64_t part, int64_t first, int64_t end) {
      const auto rows = static_cast<size_t>(end - first), width = static_cast<size_t>(n);
      if (x.scalar_type() == at::kBFloat16)
        HWY_DYNAMIC_DISPATCH(sum_bf16)(data<uint16_t>(x) + first * n, width, rows, p + part * n);
      else
        HWY_DYNAMIC_DISPATCH(sum_f32)(data<float>(x) + first * n, width, rows, p + part * n);
    });
    reduce_parts(p, parts, n, sums, mode);
  }
};

}  // namespace

std::unique_ptr<Gelu> make_gelu() {
  return std::make_unique<SimdGelu>();
}
std::unique_ptr<ColumnSum> make_column_sum() {
  return std::make_unique<SimdColumnSum>();
}

}  // namespace octavo::engine::cpu
#endif

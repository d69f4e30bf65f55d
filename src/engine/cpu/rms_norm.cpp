#include <ATen/ATen.h>

#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// sum = x + delta (rounded to T), normed = sum * rstd * gamma. delta may be null: then x is the
// sum.
template <typename T>
void rms_forward(const T* x, const T* delta, const float* gamma, size_t n, size_t rows, float eps,
                 T* sum, T* normed, float* rstd_out) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += n, normed += n) {
    VF squares = hn::Zero(d);
    for_vectors(n, [&](size_t i, size_t count) {
      VF v = load_any(d, x + i, count);
      if (delta != nullptr) {
        v = rounded_as(hn::Add(v, load_any(d, delta + r * n + i, count)), d, x);
        store_any(v, d, sum + r * n + i, count);
      }
      squares = hn::MulAdd(v, v, squares);
    });
    const T* s = delta != nullptr ? sum + r * n : x;
    const float rstd = 1.0f / std::sqrt(sum_lanes(d, squares) / static_cast<float>(n) + eps);
    for_vectors(n, [&](size_t i, size_t count) {
      const VF hat = hn::Mul(load_any(d, s + i, count), hn::Set(d, rstd));
      store_any(hn::Mul(hat, load_any(d, gamma + i, count)), d, normed + i, count);
    });
    rstd_out[r] = rstd;
  }
}

// dgamma may be null: gamma is frozen.
template <typename T>
void rms_backward(const T* dn, const T* d_sum, const T* s, const float* rstd, const float* gamma,
                  size_t n, size_t rows, T* dx, float* dgamma) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, dn += n, s += n, dx += n) {
    const VF rstd_v = hn::Set(d, rstd[r]);
    VF sum_gh = hn::Zero(d);
    for_vectors(n, [&](size_t i, size_t count) {
      const VF grad = load_any(d, dn + i, count);
      const VF hat = hn::Mul(load_any(d, s + i, count), rstd_v);
      sum_gh = hn::MulAdd(hn::Mul(grad, load_any(d, gamma + i, count)), hat, sum_gh);
      if (dgamma != nullptr)
        store_any(hn::MulAdd(grad, hat, load_any(d, dgamma + i, count)), d, dgamma + i, count);
    });
    const VF mean_gh = hn::Set(d, sum_lanes(d, sum_gh) / static_cast<float>(n));
    for_vectors(n, [&](size_t i, size_t count) {
      const VF hat = hn::Mul(load_any(d, s + i, count), rstd_v);
      const VF g = hn::Mul(load_any(d, dn + i, count), load_any(d, gamma + i, count));
      VF out = hn::Mul(rstd_v, hn::NegMulAdd(hat, mean_gh, g));
      if (d_sum != nullptr) out = hn::Add(out, load_any(d, d_sum + r * n + i, count));
      store_any(out, d, dx + i, count);
    });
  }
}

void rms_forward_bf16(const uint16_t* x, const uint16_t* delta, const float* gamma, size_t n,
                      size_t rows, float eps, uint16_t* sum, uint16_t* normed, float* rstd) {
  rms_forward(x, delta, gamma, n, rows, eps, sum, normed, rstd);
}
void rms_forward_f32(const float* x, const float* delta, const float* gamma, size_t n, size_t rows,
                     float eps, float* sum, float* normed, float* rstd) {
  rms_forward(x, delta, gamma, n, rows, eps, sum, normed, rstd);
}
void rms_backward_bf16(const uint16_t* dn, const uint16_t* d_sum, const uint16_t* s,
                       const float* rstd, const float* gamma, size_t n, size_t rows, uint16_t* dx,
                       float* dgamma) {
  rms_backward(dn, d_sum, s, rstd, gamma, n, rows, dx, dgamma);
}
void rms_backward_f32(const float* dn, const float* d_sum, const float* s, const float* rstd,
                      const float* gamma, size_t n, size_t rows, float* dx, float* dgamma) {
  rms_backward(dn, d_sum, s, rstd, gamma, n, rows, dx, dgamma);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(rms_forward_bf16);
HWY_EXPORT(rms_forward_f32);
HWY_EXPORT(rms_backward_bf16);
HWY_EXPORT(rms_backward_f32);

struct SimdRmsNorm final : RmsNorm {
  Forward forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& gamma,
                  double eps) override {
    const int64_t rows = x.size(0), n = x.size(1);
    Forward out{delta.defined() ? at::empty_like(x) : x, at::empty_like(x),
                at::empty({rows}, gamma.options())};
    auto* rstd = out.rstd.mutable_data_ptr<float>();
    with_storage(x, [&](auto type) {
      using T = typename decltype(type)::type;
      const T *from = data<T>(x), *added = data<T>(delta);
      T *sum = added != nullptr ? mutable_data<T>(out.sum) : nullptr,
        *normed = mutable_data<T>(out.normed);
      for_parts(rows, n, [&](int64_t, int64_t first, int64_t end) {
        const auto call = [&](auto kernel) {
          kernel(from + first * n, added != nullptr ? added + first * n : nullptr,
                 data<float>(gamma), static_cast<size_t>(n), static_cast<size_t>(end - first),
                 static_cast<float>(eps), sum != nullptr ? sum + first * n : nullptr,
                 normed + first * n, rstd + first);
        };
        if constexpr (std::is_same_v<T, float>)
          call(HWY_DYNAMIC_DISPATCH(rms_forward_f32));
        else
          call(HWY_DYNAMIC_DISPATCH(rms_forward_bf16));
      });
    });
    return out;
  }

  at::Tensor backward(const at::Tensor& d_normed, const at::Tensor& d_sum, const Forward& saved,
                      const at::Tensor& gamma, at::Tensor& dgamma, Accumulate mode) override {
    const int64_t rows = d_normed.size(0), n = d_normed.size(1), parts = part_count(rows);
    at::Tensor dx = at::empty_like(d_normed), partial;
    if (dgamma.defined()) partial = at::zeros({parts, n}, gamma.options());
    auto* sums = mutable_data<float>(partial);
    with_storage(d_normed, [&](auto type) {
      using T = typename decltype(type)::type;
      const T *dn = data<T>(d_normed), *ds = data<T>(d_sum), *s = data<T>(saved.sum);
      T* out = mutable_data<T>(dx);
      for_parts(rows, n, [&](int64_t part, int64_t first, int64_t end) {
        const auto call = [&](auto kernel) {
          kernel(dn + first * n, ds != nullptr ? ds + first * n : nullptr, s + first * n,
                 data<float>(saved.rstd) + first, data<float>(gamma), static_cast<size_t>(n),
                 static_cast<size_t>(end - first), out + first * n,
                 sums != nullptr ? sums + part * n : nullptr);
        };
        if constexpr (std::is_same_v<T, float>)
          call(HWY_DYNAMIC_DISPATCH(rms_backward_f32));
        else
          call(HWY_DYNAMIC_DISPATCH(rms_backward_bf16));
      });
    });
    if (sums != nullptr) reduce_parts(sums, parts, n, dgamma, mode);
    return dx;
  }
};

}  // namespace

std::unique_ptr<RmsNorm> make_rms_norm() {
  return std::make_unique<SimdRmsNorm>();
}

}  // namespace octavo::engine::cpu
#endif

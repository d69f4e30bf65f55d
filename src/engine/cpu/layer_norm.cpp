#include <ATen/ATen.h>

#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// One row: sum = x + delta (rounded to T), normed = (sum - mean) * rstd * gamma + beta.
template <typename T>
void forward_row(const T* x, const T* delta, const float* gamma, const float* beta, size_t n,
                 float eps, T* sum, T* normed, float* mean_out, float* rstd_out) {
  const F32 d;
  VF total = hn::Zero(d);
  if (delta != nullptr) {
    for_vectors(n, [&](size_t i, size_t count) {
      const VF v =
          rounded_as(hn::Add(load_any(d, x + i, count), load_any(d, delta + i, count)), d, x);
      store_any(v, d, sum + i, count);
      total = hn::Add(total, v);
    });
  } else {
    for_vectors(n,
                [&](size_t i, size_t count) { total = hn::Add(total, load_any(d, x + i, count)); });
  }
  const T* s = delta != nullptr ? sum : x;
  const float mean = sum_lanes(d, total) / static_cast<float>(n);
  const VF mean_v = hn::Set(d, mean);
  VF squares = hn::Zero(d);
  for_vectors(n, [&](size_t i, size_t count) {
    const VF c = hn::Sub(load_any(d, s + i, count, mean), mean_v);
    squares = hn::MulAdd(c, c, squares);
  });
  const float rstd = 1.0f / std::sqrt(sum_lanes(d, squares) / static_cast<float>(n) + eps);
  const VF rstd_v = hn::Set(d, rstd);
  for_vectors(n, [&](size_t i, size_t count) {
    const VF hat = hn::Mul(hn::Sub(load_any(d, s + i, count), mean_v), rstd_v);
    store_any(hn::MulAdd(hat, load_any(d, gamma + i, count), load_any(d, beta + i, count)), d,
              normed + i, count);
  });
  *mean_out = mean;
  *rstd_out = rstd;
}

template <typename T>
void backward_row(const T* dn, const T* d_sum, const T* s, float mean, float rstd,
                  const float* gamma, size_t n, T* dx, float* dgamma, float* dbeta) {
  const F32 d;
  const VF mean_v = hn::Set(d, mean), rstd_v = hn::Set(d, rstd);
  VF sum_g = hn::Zero(d), sum_gh = hn::Zero(d);
  for_vectors(n, [&](size_t i, size_t count) {
    const VF grad = load_any(d, dn + i, count);
    const VF hat = hn::Mul(hn::Sub(load_any(d, s + i, count, mean), mean_v), rstd_v);
    const VF g = hn::Mul(grad, load_any(d, gamma + i, count));
    sum_g = hn::Add(sum_g, g);
    sum_gh = hn::MulAdd(g, hat, sum_gh);
    store_any(hn::MulAdd(grad, hat, load_any(d, dgamma + i, count)), d, dgamma + i, count);
    store_any(hn::Add(grad, load_any(d, dbeta + i, count)), d, dbeta + i, count);
  });
  const float inverse = 1.0f / static_cast<float>(n);
  const VF mean_g = hn::Set(d, sum_lanes(d, sum_g) * inverse),
           mean_gh = hn::Set(d, sum_lanes(d, sum_gh) * inverse);
  for_vectors(n, [&](size_t i, size_t count) {
    const VF hat = hn::Mul(hn::Sub(load_any(d, s + i, count), mean_v), rstd_v);
    const VF g = hn::Mul(load_any(d, dn + i, count), load_any(d, gamma + i, count));
    VF out = hn::Mul(rstd_v, hn::Sub(hn::Sub(g, mean_g), hn::Mul(hat, mean_gh)));
    if (d_sum != nullptr) out = hn::Add(out, load_any(d, d_sum + i, count));
    store_any(out, d, dx + i, count);
  });
}

void forward_rows_bf16(const uint16_t* x, const uint16_t* delta, const float* gamma,
                       const float* beta, size_t n, size_t rows, float eps, uint16_t* sum,
                       uint16_t* normed, float* mean, float* rstd) {
  for (size_t r = 0; r < rows; ++r)
    forward_row(x + r * n, delta != nullptr ? delta + r * n : nullptr, gamma, beta, n, eps,
                sum + r * n, normed + r * n, mean + r, rstd + r);
}
void forward_rows_f32(const float* x, const float* delta, const float* gamma, const float* beta,
                      size_t n, size_t rows, float eps, float* sum, float* normed, float* mean,
                      float* rstd) {
  for (size_t r = 0; r < rows; ++r)
    forward_row(x + r * n, delta != nullptr ? delta + r * n : nullptr, gamma, beta, n, eps,
                sum + r * n, normed + r * n, mean + r, rstd + r);
}
void backward_rows_bf16(const uint16_t* dn, const uint16_t* d_sum, const uint16_t* s,
                        const float* mean, const float* rstd, const float* gamma, size_t n,
                        size_t rows, uint16_t* dx, float* dgamma, float* dbeta) {
  for (size_t r = 0; r < rows; ++r)
    backward_row(dn + r * n, d_sum != nullptr ? d_sum + r * n : nullptr, s + r * n, mean[r],
                 rstd[r], gamma, n, dx + r * n, dgamma, dbeta);
}
void backward_rows_f32(const float* dn, const float* d_sum, const float* s, const float* mean,
                       const float* rstd, const float* gamma, size_t n, size_t rows, float* dx,
                       float* dgamma, float* dbeta) {
  for (size_t r = 0; r < rows; ++r)
    backward_row(dn + r * n, d_sum != nullptr ? d_sum + r * n : nullptr, s + r * n, mean[r],
                 rstd[r], gamma, n, dx + r * n, dgamma, dbeta);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(forward_rows_bf16);
HWY_EXPORT(forward_rows_f32);
HWY_EXPORT(backward_rows_bf16);
HWY_EXPORT(backward_rows_f32);

struct SimdLayerNorm final : LayerNorm {
  Forward forward(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& gamma,
                  const at::Tensor& beta, double eps) override {
    const int64_t rows = x.size(0), n = x.size(1);
    Forward out{delta.defined() ? at::empty_like(x) : x, at::empty_like(x),
                at::empty({rows}, gamma.options()), at::empty({rows}, gamma.options())};
    float *mean = out.mean.mutable_data_ptr<float>(), *rstd = out.rstd.mutable_data_ptr<float>();
    with_storage(x, [&](auto type) {
      using T = typename decltype(type)::type;
      const T *xp = data<T>(x), *dp = data<T>(delta);
      // When there is no delta nothing is written to the sum.
      T* sum = delta.defined() ? mutable_data<T>(out.sum) : const_cast<T*>(xp);
      T* normed = mutable_data<T>(out.normed);
      for_parts(rows, n, [&](int64_t, int64_t first, int64_t end) {
        const auto call = [&](auto kernel) {
          kernel(xp + first * n, dp != nullptr ? dp + first * n : nullptr, data<float>(gamma),
                 data<float>(beta), static_cast<size_t>(n), static_cast<size_t>(end - first),
                 static_cast<float>(eps), sum + first * n, normed + first * n, mean + first,
                 rstd + first);
        };
        if constexpr (std::is_same_v<T, float>)
          call(HWY_DYNAMIC_DISPATCH(forward_rows_f32));
        else
          call(HWY_DYNAMIC_DISPATCH(forward_rows_bf16));
      });
    });
    return out;
  }

  at::Tensor backward(const at::Tensor& d_normed, const at::Tensor& d_sum, const Forward& saved,
                      const at::Tensor& gamma, at::Tensor& dgamma, at::Tensor& dbeta,
                      Accumulate mode) override {
    const int64_t rows = d_normed.size(0), n = d_normed.size(1), parts = part_count(rows);
    at::Tensor dx = at::empty_like(d_normed);
    at::Tensor partial = at::zeros({2, parts, n}, gamma.options());
    float* sums = partial.mutable_data_ptr<float>();
    with_storage(d_normed, [&](auto type) {
      using T = typename decltype(type)::type;
      const T *dn = data<T>(d_normed), *ds = data<T>(d_sum), *s = data<T>(saved.sum);
      T* out = mutable_data<T>(dx);
      for_parts(rows, n, [&](int64_t part, int64_t first, int64_t end) {
        const auto call = [&](auto kernel) {
          kernel(dn + first * n, ds != nullptr ? ds + first * n : nullptr, s + first * n,
                 data<float>(saved.mean) + first, data<float>(saved.rstd) + first,
                 data<float>(gamma), static_cast<size_t>(n), static_cast<size_t>(end - first),
                 out + first * n, sums + part * n, sums + (parts + part) * n);
        };
        if constexpr (std::is_same_v<T, float>)
          call(HWY_DYNAMIC_DISPATCH(backward_rows_f32));
        else
          call(HWY_DYNAMIC_DISPATCH(backward_rows_bf16));
      });
    });
    reduce_parts(sums, parts, n, dgamma, mode);
    reduce_parts(sums + parts * n, parts, n, dbeta, mode);
    return dx;
  }
};

}  // namespace

std::unique_ptr<LayerNorm> make_layer_norm() {
  return std::make_unique<SimdLayerNorm>();
}

}  // namespace octavo::engine::cpu
#endif

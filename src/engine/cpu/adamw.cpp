#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#ifndef OCTAVO_ENGINE_CPU_ADAMW_FACTORS_
#define OCTAVO_ENGINE_CPU_ADAMW_FACTORS_  // this file is included again for each target
namespace octavo::engine::cpu {

// lr_hat and eps_hat have the bias corrections folded in: m / c1 / (sqrt(v / c2) + eps)
//   = (sqrt(c2) / c1) m / (sqrt(v) + eps sqrt(c2)).
struct Factors {
  float beta1, beta2, grad_scale, keep, lr_hat, eps_hat;
};

}  // namespace octavo::engine::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/adamw.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

void update(float* w, float* m, float* v, const float* g, uint16_t* compute, size_t n,
            const Factors& f) {
  const F32 d;
  const VF beta1 = hn::Set(d, f.beta1), beta2 = hn::Set(d, f.beta2),
           scale = hn::Set(d, f.grad_scale);
  const VF rest1 = hn::Set(d, 1 - f.beta1), rest2 = hn::Set(d, 1 - f.beta2);
  const VF keep = hn::Set(d, f.keep), lr = hn::Set(d, f.lr_hat), eps = hn::Set(d, f.eps_hat);
  for_vectors(n, [&](size_t i, size_t count) {
    const VF grad = hn::Mul(load_any(d, g + i, count), scale);
    const VF m1 = hn::MulAdd(load_any(d, m + i, count), beta1, hn::Mul(grad, rest1));
    const VF v1 = hn::MulAdd(load_any(d, v + i, count), beta2, hn::Mul(hn::Mul(grad, grad), rest2));
    const VF step = hn::Div(hn::Mul(lr, m1), hn::Add(hn::Sqrt(v1), eps));
    const VF w1 = hn::Sub(hn::Mul(load_any(d, w + i, count), keep), step);
    store_any(m1, d, m + i, count);
    store_any(v1, d, v + i, count);
    store_any(w1, d, w + i, count);
    if (compute != nullptr) store_any(w1, d, compute + i, count);
  });
}

double squares(const float* g, size_t n) {
  // Four FP32 sums over at most 4096 values, so that additions overlap; added up in double.
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  double total = 0;
  for (size_t begin = 0; begin < n; begin += 4096) {
    const size_t end = std::min(begin + 4096, n);
    VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    size_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes)
      for (size_t k = 0; k < 4; ++k) {
        const VF x = load(d, g + i + k * lanes);
        sums[k] = hn::MulAdd(x, x, sums[k]);
      }
    for_vectors(end - i, [&](size_t offset, size_t count) {
      const VF x = load_any(d, g + i + offset, count);
      sums[0] = hn::MulAdd(x, x, sums[0]);
    });
    total += sum_lanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  }
  return total;
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(update);
HWY_EXPORT(squares);

constexpr int64_t kChunk = int64_t{1} << 16;

struct SimdAdamW final : AdamW {
  void step(at::Tensor& master, at::Tensor& m, at::Tensor& v, const at::Tensor& grad,
            at::Tensor& compute, const Hyper& h) override {
    OCTAVO_ASSERT(master.is_contiguous() && m.is_contiguous() && v.is_contiguous() &&
                  grad.is_contiguous());
    const double correction1 = 1 - std::pow(static_cast<double>(h.beta1), h.step);
    const double correction2 = 1 - std::pow(static_cast<double>(h.beta2), h.step);
    const auto root2 = static_cast<float>(std::sqrt(correction2));
    const Factors factors{.beta1 = h.beta1,
                          .beta2 = h.beta2,
                          .grad_scale = h.grad_scale,
                          .keep = 1 - h.lr * h.weight_decay,
                          .lr_hat = h.lr * root2 / static_cast<float>(correction1),
                          .eps_hat = h.eps * root2};
    at::parallel_for(0, master.numel(), kChunk, [&](int64_t begin, int64_t end) {
      uint16_t* copy = compute.defined() ? mutable_data<uint16_t>(compute) + begin : nullptr;
      HWY_DYNAMIC_DISPATCH(update)
      (mutable_data<float>(master) + begin, mutable_data<float>(m) + begin,
       mutable_data<float>(v) + begin, data<float>(grad) + begin, copy,
       static_cast<size_t>(end - begin), factors);
    });
  }

  double sum_of_squares(const at::Tensor& grad) override {
    OCTAVO_ASSERT(grad.is_contiguous());
    const int64_t n = grad.numel(), chunks = (n + kChunk - 1) / kChunk;
    std::vector<double> sums(static_cast<size_t>(chunks));
    at::parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        sums[static_cast<size_t>(c)] = HWY_DYNAMIC_DISPATCH(squares)(
            data<float>(grad) + c * kChunk, static_cast<size_t>(std::min(kChunk, n - c * kChunk)));
    });
    double total = 0;
    for (const double s : sums) total += s;
    return total;
  }
};

}  // namespace

std::unique_ptr<AdamW> make_adamw() {
  return std::make_unique<SimdAdamW>();
}

}  // namespace octavo::engine::cpu
#endif

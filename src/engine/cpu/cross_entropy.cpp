#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

struct RowSum {
  float max, sum;  // logsumexp = max + log(sum)
};

// exps[0, classes) receives exp(logit - max): one exponential per element, reused for
// the gradient; it stays in the second-level cache, the logits are never copied to FP32 as a whole.
template <typename T>
RowSum exponentials(const T* logits, size_t classes, float* exps) {
  const F32 d;
  VF largest = hn::Set(d, -INFINITY);
  for_vectors(classes, [&](size_t i, size_t count) {
    largest = hn::Max(largest, load_any(d, logits + i, count, -INFINITY));
  });
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  const VF max_v = hn::Set(d, max);
  VF total = hn::Zero(d);
  for_vectors(classes, [&](size_t i, size_t count) {
    const VF x = hn::Sub(load_any(d, logits + i, count, -INFINITY), max_v);
    const VF e = fast_exp(d, x);
    store_any(e, d, exps + i, count);
    total = hn::Add(total, e);
  });
  return {max, sum_lanes(d, total)};
}

// logits become factor * exps - scale * onehot(target); padding columns get zero.
template <typename T>
void gradient(T* logits, size_t columns, size_t classes, const float* exps, float factor,
              int32_t target, float scale) {
  const F32 d;
  const VF factor_v = hn::Set(d, factor);
  for_vectors(classes, [&](size_t i, size_t count) {
    store_any(hn::Mul(load_any(d, exps + i, count), factor_v), d, logits + i, count);
  });
  from_float(exps[target] * factor - scale, logits + target);
  for (size_t i = classes; i < columns; ++i) from_float(0.0f, logits + i);
}

template <typename T>
void row(T* logits, size_t columns, int32_t target, const CrossEntropy::Options& o, float* exps,
         double* nll, double* z) {
  const auto classes = static_cast<size_t>(o.classes);
  if (target < 0) {
    if (o.want_gradient)
      for (size_t i = 0; i < columns; ++i) from_float(0.0f, logits + i);
    return;
  }
  const float at_target = to_float(logits[target]);
  const RowSum parts = exponentials(logits, classes, exps);
  const float lse = parts.max + std::log(parts.sum);
  *nll += static_cast<double>(lse) - at_target;
  *z += static_cast<double>(lse) * lse;
  if (!o.want_gradient) return;
  const float p_weight = 1 + 2 * o.z_weight * lse;
  gradient(logits, columns, classes, exps, p_weight * o.grad_scale / parts.sum, target,
           o.grad_scale);
}

void row_bf16(uint16_t* logits, size_t columns, int32_t target, const CrossEntropy::Options& o,
              float* exps, double* nll, double* z) {
  row(logits, columns, target, o, exps, nll, z);
}
void row_f32(float* logits, size_t columns, int32_t target, const CrossEntropy::Options& o,
             float* exps, double* nll, double* z) {
  row(logits, columns, target, o, exps, nll, z);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(row_bf16);
HWY_EXPORT(row_f32);

struct SimdCrossEntropy final : CrossEntropy {
  at::Tensor run(at::Tensor& logits, const at::Tensor& targets, const Options& options) override {
    const int64_t rows = logits.size(0), columns = logits.size(1);
    const int32_t* ids = targets.const_data_ptr<int32_t>();
    const at::Tensor each =
        options.each.defined() ? options.each : at::empty({rows, 2}, at::kDouble);
    double* of_rows = each.mutable_data_ptr<double>();
    std::fill(of_rows, of_rows + 2 * rows, 0.0);  // rows that are ignored stay so
    parallel_for(0, rows, grain_of_rows(columns), [&](int64_t begin, int64_t end) {
      std::vector<float> exps(static_cast<size_t>(options.classes) + 64);
      for (int64_t r = begin; r < end; ++r) {
        double *nll = of_rows + 2 * r, *z = nll + 1;
        if (logits.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(row_bf16)
        (mutable_data<uint16_t>(logits) + r * columns, static_cast<size_t>(columns), ids[r],
         options, exps.data(), nll, z);
        else HWY_DYNAMIC_DISPATCH(row_f32)(mutable_data<float>(logits) + r * columns,
                                           static_cast<size_t>(columns), ids[r], options,
                                           exps.data(), nll, z);
      }
    });
    at::Tensor sums = at::zeros({2}, at::kDouble);
    double* total = sums.mutable_data_ptr<double>();
    for (int64_t r = 0; r < rows; ++r) {
      total[0] += of_rows[2 * r];
      total[1] += of_rows[2 * r + 1];
    }
    return sums;
  }
};

}  // namespace

std::unique_ptr<CrossEntropy> make_cross_entropy() {
  return std::make_unique<SimdCrossEntropy>();
}

}  // namespace octavo::engine::cpu
#endif

#include "engine/cpu/attention_rows.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/attention_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

struct KeyRange {
  size_t first, count;
};

HWY_INLINE KeyRange keys_seen(SeenKeys seen, size_t row, size_t keys) {
  const size_t end = seen.diagonal ? row + 1 : keys;
  const std::ptrdiff_t from = seen.first + static_cast<std::ptrdiff_t>(row);
  const size_t first = from > 0 ? std::min(static_cast<size_t>(from), end) : 0;
  return {first, end - first};
}

HWY_INLINE void zero_unseen(uint16_t* p, KeyRange range, size_t keys) {
  std::fill(p, p + range.first, uint16_t{0});
  std::fill(p + range.first + range.count, p + keys, uint16_t{0});
}

void SoftmaxBackwardRows(const float* s, const float* dp, const float* lse, const float* delta,
                         size_t rows, size_t real, size_t keys, SeenKeys seen, float scale,
                         uint16_t* p, uint16_t* ds) {
  const F32 d;
  const VF scale_v = hn::Set(d, scale);
  std::fill(p + real * keys, p + rows * keys, uint16_t{0});
  std::fill(ds + real * keys, ds + rows * keys, uint16_t{0});
  for (size_t r = 0; r < real; ++r, s += keys, dp += keys, p += keys, ds += keys) {
    const KeyRange range = keys_seen(seen, r, keys);
    const VF lse_v = hn::Set(d, lse[r]), delta_v = hn::Set(d, delta[r]);
    for_vectors(range.count, [&](size_t at, size_t n) {
      const size_t i = range.first + at;
      const VF prob = fast_exp(d, hn::MulSub(load_any(d, s + i, n), scale_v, lse_v));
      store_any(prob, d, p + i, n);
      const VF flow = hn::Sub(load_any(d, dp + i, n), delta_v);
      store_any(hn::Mul(hn::Mul(prob, scale_v), flow), d, ds + i, n);
    });
    zero_unseen(p, range, keys);
    zero_unseen(ds, range, keys);
  }
}

void SoftmaxForwardRows(const float* s, size_t rows, size_t real, size_t keys, SeenKeys seen,
                        bool is_first, float scale, uint16_t* p, float* m, float* l, float* out,
                        size_t dim) {
  const F32 d;
  constexpr float kLowest = -3e38f;
  const VF scale_v = hn::Set(d, scale);
  std::fill(p + real * keys, p + rows * keys, uint16_t{0});
  for (size_t r = 0; r < real; ++r, s += keys, p += keys, out += dim) {
    const KeyRange range = keys_seen(seen, r, keys);
    VF most = hn::Set(d, kLowest);
    for_vectors(range.count, [&](size_t i, size_t n) {
      most = hn::Max(most, load_any(d, s + range.first + i, n, kLowest));
    });
    const float here = hn::GetLane(hn::MaxOfLanes(d, most)) * scale;
    const float now = is_first ? here : std::max(m[r], here);
    VF sum = hn::Zero(d);
    for_vectors(range.count, [&](size_t at, size_t n) {
      const size_t i = range.first + at;
      // Lanes behind the end are exp of something very small: nothing.
      const VF score = load_any(d, s + i, n, kLowest);
      const VF prob = fast_exp(d, hn::MulSub(score, scale_v, hn::Set(d, now)));
      store_any(prob, d, p + i, n);
      sum = hn::Add(sum, prob);
    });
    zero_unseen(p, range, keys);
    const float shrink = is_first ? 0.0f : std::exp(m[r] - now);
    l[r] = (is_first ? 0.0f : l[r] * shrink) + sum_lanes(d, sum);
    if (!is_first && shrink != 1)
      for_vectors(dim, [&](size_t i, size_t n) {
        store_any(hn::Mul(load_any(d, out + i, n), hn::Set(d, shrink)), d, out + i, n);
      });
    m[r] = now;
  }
}

void FinishRows(const float* x, const float* m, const float* l, size_t rows, size_t dim,
                uint16_t* out, size_t stride, float* lse) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += dim, out += stride) {
    const VF share = hn::Set(d, 1 / l[r]);
    for_vectors(dim, [&](size_t i, size_t n) {
      store_any(hn::Mul(load_any(d, x + i, n), share), d, out + i, n);
    });
    lse[r] = m[r] + std::log(l[r]);
  }
}

void RowDots(const uint16_t* a, const uint16_t* b, size_t rows, size_t columns, size_t stride,
             float* out) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, a += stride, b += stride) {
    VF sum = hn::Zero(d);
    for_vectors(columns, [&](size_t i, size_t n) {
      sum = hn::MulAdd(load_any(d, a + i, n), load_any(d, b + i, n), sum);
    });
    out[r] = sum_lanes(d, sum);
  }
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {

HWY_EXPORT(SoftmaxBackwardRows);
HWY_EXPORT(SoftmaxForwardRows);
HWY_EXPORT(FinishRows);
HWY_EXPORT(RowDots);

void softmax_backward_rows(const float* s, const float* dp, const float* lse, const float* delta,
                           size_t rows, size_t real, size_t keys, SeenKeys seen, float scale,
                           uint16_t* p, uint16_t* ds) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRows)
  (s, dp, lse, delta, rows, real, keys, seen, scale, p, ds);
}
void softmax_forward_rows(const float* s, size_t rows, size_t real, size_t keys, SeenKeys seen,
                          bool is_first, float scale, uint16_t* p, float* m, float* l, float* out,
                          size_t dim) {
  HWY_DYNAMIC_DISPATCH(SoftmaxForwardRows)
  (s, rows, real, keys, seen, is_first, scale, p, m, l, out, dim);
}
void finish_rows(const float* x, const float* m, const float* l, size_t rows, size_t dim,
                 uint16_t* out, size_t stride, float* lse) {
  HWY_DYNAMIC_DISPATCH(FinishRows)(x, m, l, rows, dim, out, stride, lse);
}
void row_dots(const uint16_t* a, const uint16_t* b, size_t rows, size_t columns, size_t stride,
              float* out) {
  HWY_DYNAMIC_DISPATCH(RowDots)(a, b, rows, columns, stride, out);
}

}  // namespace octavo::engine::cpu
#endif

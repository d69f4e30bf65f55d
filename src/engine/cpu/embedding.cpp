#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

template <typename T>
void add_two(const T* a, const T* b, T* out, size_t n) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) {
    VF v = load_any(d, a + i, count);
    if (b != nullptr) v = hn::Add(v, load_any(d, b + i, count));
    store_any(v, d, out + i, count);
  });
}

template <typename T>
void accumulate(const T* x, float* sum, size_t n) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) {
    store_any(hn::Add(load_any(d, sum + i, count), load_any(d, x + i, count)), d, sum + i, count);
  });
}

// BF16 to FP32, and back with rounding.
template <typename From, typename To>
void convert(const From* from, To* to, size_t n) {
  const F32 d;
  for_vectors(n, [&](size_t i, size_t count) {
    store_any(load_any(d, from + i, count), d, to + i, count);
  });
}

void widen(const uint16_t* from, float* to, size_t n) {
  convert(from, to, n);
}
void narrow(const float* from, uint16_t* to, size_t n) {
  convert(from, to, n);
}
void add_two_bf16(const uint16_t* a, const uint16_t* b, uint16_t* out, size_t n) {
  add_two(a, b, out, n);
}
void add_two_f32(const float* a, const float* b, float* out, size_t n) {
  add_two(a, b, out, n);
}
void accumulate_bf16(const uint16_t* x, float* sum, size_t n) {
  accumulate(x, sum, n);
}
void accumulate_f32(const float* x, float* sum, size_t n) {
  accumulate(x, sum, n);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(add_two_bf16);
HWY_EXPORT(add_two_f32);
HWY_EXPORT(accumulate_bf16);
HWY_EXPORT(accumulate_f32);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

// dx's row r, columns begin to begin + width, added to `sum`.
void add_row(const at::Tensor& dx, int64_t r, int64_t begin, float* sum, size_t width) {
  const int64_t from = r * dx.size(1) + begin;
  if (dx.scalar_type() == at::kBFloat16)
    HWY_DYNAMIC_DISPATCH(accumulate_bf16)(data<uint16_t>(dx) + from, sum, width);
  else
    HWY_DYNAMIC_DISPATCH(accumulate_f32)(data<float>(dx) + from, sum, width);
}

// Not less than two cache lines of FP32 in a row.
int64_t grain_of_columns(int64_t rows) {
  return std::max<int64_t>(128, grain_of_rows(rows));
}

// Adds row r of dx to row target(r) of `gradient`. Each thread owns a range of columns and goes
// through the rows in a fixed order: no two threads add to one number, and the order of the
// additions to it is always that of the rows.
template <class Target>
void scatter_add(const at::Tensor& dx, at::Tensor& gradient, const Target& target) {
  const int64_t rows = dx.size(0), n = dx.size(1);
  if (gradient.scalar_type() == at::kFloat) {
    auto* sums = mutable_data<float>(gradient);
    parallel_for(0, n, grain_of_columns(rows), [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows; ++r)
        add_row(dx, r, begin, sums + target(r) * n + begin, static_cast<size_t>(end - begin));
    });
    return;
  }
  // BF16: all rows of one target in a row, so that their sum can be rounded once.
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return target(a) < target(b); });
  auto* sums = mutable_data<uint16_t>(gradient);
  parallel_for(0, n, grain_of_columns(rows), [&](int64_t begin, int64_t end) {
    const auto width = static_cast<size_t>(end - begin);
    std::vector<float> sum(width);
    for (size_t i = 0; i < order.size();) {
      const int64_t row = target(order[i]);
      uint16_t* stored = sums + row * n + begin;
      HWY_DYNAMIC_DISPATCH(widen)(stored, sum.data(), width);
      for (; i < order.size() && target(order[i]) == row; ++i)
        add_row(dx, order[i], begin, sum.data(), width);
      HWY_DYNAMIC_DISPATCH(narrow)(sum.data(), stored, width);
    }
  });
}

struct SimdEmbedding final : Embedding {
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                     int64_t length) override {
    const int64_t rows = ids.size(0), n = tokens.size(1);
    const int32_t* id = ids.const_data_ptr<int32_t>();
    at::Tensor x = at::empty({rows, n}, tokens.options());
    parallel_for(0, rows, grain_of_rows(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t from = id[r] * n, position = r % length * n;
        const auto width = static_cast<size_t>(n);
        if (tokens.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(add_two_bf16)
        (data<uint16_t>(tokens) + from,
         positions.defined() ? data<uint16_t>(positions) + position : nullptr,
         mutable_data<uint16_t>(x) + r * n, width);
        else HWY_DYNAMIC_DISPATCH(add_two_f32)(
            data<float>(tokens) + from,
            positions.defined() ? data<float>(positions) + position : nullptr,
            mutable_data<float>(x) + r * n, width);
      }
    });
    return x;
  }

  void backward(const at::Tensor& ids, const at::Tensor& dx, at::Tensor& d_tokens,
                at::Tensor& d_positions, int64_t length) override {
    const int32_t* id = ids.const_data_ptr<int32_t>();
    scatter_add(dx, d_tokens, [&](int64_t r) { return int64_t{id[r]}; });
    if (d_positions.defined()) scatter_add(dx, d_positions, [&](int64_t r) { return r % length; });
  }
};

}  // namespace

std::unique_ptr<Embedding> make_embedding() {
  return std::make_unique<SimdEmbedding>();
}

}  // namespace octavo::engine::cpu
#endif

#include <ATen/ATen.h>

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

struct SimdEmbedding final : Embedding {
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                     int64_t length) override {
    const int64_t rows = ids.size(0), n = tokens.size(1);
    const int32_t* id = ids.const_data_ptr<int32_t>();
    at::Tensor x = at::empty({rows, n}, tokens.options());
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
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
    // Each thread owns a range of columns and goes through all rows in order: no two threads add to
    // one number, and the order of the additions is always the same.
    const int64_t rows = dx.size(0), n = dx.size(1);
    const int32_t* id = ids.const_data_ptr<int32_t>();
    float *tokens = d_tokens.mutable_data_ptr<float>(),
          *positions = mutable_data<float>(d_positions);
    at::parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
      const auto width = static_cast<size_t>(end - begin);
      for (int64_t r = 0; r < rows; ++r) {
        const auto add_to = [&](float* sum) {
          if (dx.scalar_type() == at::kBFloat16)
            HWY_DYNAMIC_DISPATCH(accumulate_bf16)(data<uint16_t>(dx) + r * n + begin, sum, width);
          else
            HWY_DYNAMIC_DISPATCH(accumulate_f32)(data<float>(dx) + r * n + begin, sum, width);
        };
        add_to(tokens + id[r] * n + begin);
        if (positions != nullptr) add_to(positions + r % length * n + begin);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Embedding> make_embedding() {
  return std::make_unique<SimdEmbedding>();
}

}  // namespace octavo::engine::cpu
#endif

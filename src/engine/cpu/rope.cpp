#include <ATen/ATen.h>

#include "engine/cpu/cpu.h"
#include "engine/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/rope.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

// One row: `heads` heads of 2 * half channels, all turned by the same angles.
template <typename T>
void rotate_row(T* x, const float* cosine, const float* sine, size_t heads, size_t half,
                float direction) {
  const F32 d;
  const VF sign = hn::Set(d, direction);
  for (size_t h = 0; h < heads; ++h, x += 2 * half)
    for_vectors(half, [&](size_t i, size_t count) {
      const VF c = load_any(d, cosine + i, count), s = hn::Mul(load_any(d, sine + i, count), sign);
      const VF a = load_any(d, x + i, count), b = load_any(d, x + half + i, count);
      store_any(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i, count);
      store_any(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i, count);
    });
}

void rotate_row_bf16(uint16_t* x, const float* cosine, const float* sine, size_t heads, size_t half,
                     float direction) {
  rotate_row(x, cosine, sine, heads, half, direction);
}
void rotate_row_f32(float* x, const float* cosine, const float* sine, size_t heads, size_t half,
                    float direction) {
  rotate_row(x, cosine, sine, heads, half, direction);
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {
namespace {

HWY_EXPORT(rotate_row_bf16);
HWY_EXPORT(rotate_row_f32);

struct SimdRope final : Rope {
  void rotate(at::Tensor& x, const at::Tensor& positions, const at::Tensor& table, int64_t heads,
              bool back) override {
    const int64_t row = x.size(1), dim = table.size(1);
    const auto* position = positions.const_data_ptr<int32_t>();
    const float direction = back ? -1.0f : 1.0f;
    parallel_for(0, x.size(0), grain_of_rows(heads * dim), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* angles = data<float>(table) + position[r] * dim;
        const auto count = static_cast<size_t>(heads), half = static_cast<size_t>(dim / 2);
        if (x.scalar_type() == at::kBFloat16) HWY_DYNAMIC_DISPATCH(rotate_row_bf16)
        (mutable_data<uint16_t>(x) + r * row, angles, angles + dim / 2, count, half, direction);
        else HWY_DYNAMIC_DISPATCH(rotate_row_f32)(mutable_data<float>(x) + r * row, angles,
                                                  angles + dim / 2, count, half, direction);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Rope> make_rope() {
  return std::make_unique<SimdRope>();
}

}  // namespace octavo::engine::cpu
#endif

#include "engine/cpu/bf16_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/bf16_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway demands.
#include "engine/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octavo::engine::cpu::HWY_NAMESPACE {

void ToFp32Rows(const uint16_t* x, size_t rows, size_t columns, size_t stride, float* out) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += stride, out += columns)
    for_vectors(columns,
                [&](size_t i, size_t n) { store_any(load_any(d, x + i, n), d, out + i, n); });
}

void ToBf16Rows(const float* x, size_t rows, size_t columns, uint16_t* out, size_t stride) {
  const F32 d;
  for (size_t r = 0; r < rows; ++r, x += columns, out += stride)
    for_vectors(columns,
                [&](size_t i, size_t n) { store_any(load_any(d, x + i, n), d, out + i, n); });
}

}  // namespace octavo::engine::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::engine::cpu {

HWY_EXPORT(ToFp32Rows);
HWY_EXPORT(ToBf16Rows);

void to_fp32_rows(const uint16_t* x, size_t rows, size_t columns, size_t stride, float* out) {
  HWY_DYNAMIC_DISPATCH(ToFp32Rows)(x, rows, columns, stride, out);
}
void to_bf16_rows(const float* x, size_t rows, size_t columns, uint16_t* out, size_t stride) {
  HWY_DYNAMIC_DISPATCH(ToBf16Rows)(x, rows, columns, out, stride);
}

}  // namespace octavo::engine::cpu
#endif

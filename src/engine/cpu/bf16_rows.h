#pragma once
// Rows of BF16 (as their bits) to FP32 and back, compiled for several instruction sets and chosen
// at run time.

#include <cstddef>
#include <cstdint>

namespace octavo::engine::cpu {

// BF16 rows that are `stride` apart to dense FP32 rows: exact.
void to_fp32_rows(const uint16_t* x, size_t rows, size_t columns, size_t stride, float* out);

// Dense FP32 rows to BF16 rows that are `stride` apart, to the nearest and ties to even.
void to_bf16_rows(const float* x, size_t rows, size_t columns, uint16_t* out, size_t stride);

}  // namespace octavo::engine::cpu

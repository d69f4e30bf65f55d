#pragma once
// The row kernels of attention, compiled for several instruction sets and chosen at run time.

#include <cstddef>
#include <cstdint>

namespace octavo::engine::cpu {

// The keys of a block that row r of a block of queries sees: from first + r on, which may be before
// the block or behind it, and on the diagonal up to r.
struct SeenKeys {
  bool diagonal = false;
  std::ptrdiff_t first = 0;
};

// One block of scores [rows, keys]: p = exp(scale s - lse), ds = scale p (dp - delta), both BF16,
// and zero for keys that are not seen and in rows from `real` on.
void softmax_backward_rows(const float* s, const float* dp, const float* lse, const float* delta,
                           size_t rows, size_t real, size_t keys, SeenKeys seen, float scale,
                           uint16_t* p, uint16_t* ds);

// One block of scores [rows, keys] of queries that may have seen other blocks before: p = exp(scale
// s - m) in BF16, with the largest score m and the sum l brought up to date and `out` rescaled to
// the new m. Rows and keys as above; a row may see none of them.
void softmax_forward_rows(const float* s, size_t rows, size_t real, size_t keys, SeenKeys seen,
                          bool is_first, float scale, uint16_t* p, float* m, float* l, float* out,
                          size_t dim);

// out[r] = x[r] / l[r] in BF16, and the logarithm of the softmax's sum.
void finish_rows(const float* x, const float* m, const float* l, size_t rows, size_t dim,
                 uint16_t* out, size_t stride, float* lse);

// out[r] = sum over columns of a * b
void row_dots(const uint16_t* a, const uint16_t* b, size_t rows, size_t columns, size_t stride,
              float* out);

}  // namespace octavo::engine::cpu

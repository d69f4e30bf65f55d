#pragma once
// Work over rows, split into parts whose number depends only on the rows: sums over parts are then
// the same whatever the number of threads.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/ops.h"
#include "engine/parallel.h"

namespace octavo::engine::cpu {

constexpr int64_t kMaxParts = 32;

inline int64_t part_count(int64_t rows) {
  return std::min(rows, kMaxParts);
}

// body(part, first_row, end_row); rows of `width` elements.
template <class Body>
void for_parts(int64_t rows, int64_t width, const Body& body) {
  const int64_t parts = part_count(rows);
  if (parts == 0) return;
  parallel_for(0, parts, grain_of_rows(rows / parts * width), [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      body(part, part * rows / parts, (part + 1) * rows / parts);
  });
}

// out[c] (+)= sum over parts of partial[part][c], in the order of the parts.
inline void reduce_parts(const float* partial, int64_t parts, int64_t columns, at::Tensor& out,
                         Accumulate mode) {
  float* result = out.mutable_data_ptr<float>();
  if (mode != Accumulate::kAdd) std::fill_n(result, columns, 0.0f);
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t c = 0; c < columns; ++c) result[c] += partial[part * columns + c];
}

// Calls f with the data as uint16_t* (BF16 bits) or float*.
template <class F>
void with_storage(const at::Tensor& t, const F& f) {
  if (t.scalar_type() == at::kBFloat16)
    f(std::type_identity<uint16_t>());
  else
    f(std::type_identity<float>());
}

template <typename T>
const T* data(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}
template <typename T>
T* mutable_data(at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

}  // namespace octavo::engine::cpu

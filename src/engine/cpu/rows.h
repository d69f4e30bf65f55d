#pragma once
// Tensors, for kernels that work over parts of their rows.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/parts.h"
#include "engine/ops.h"

namespace octavo::engine::cpu {

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

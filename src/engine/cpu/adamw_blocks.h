#pragma once
// AdamW over state in BF16 and FP8 (adamw_storage.h), one block of 128 elements at a time.

#include <cstddef>
#include <cstdint>

#include "kernels/adamw_storage.h"

namespace octavo::engine::cpu {

enum class StoredAs : uint8_t { kFp32, kBf16, kFp8 };

struct StoredArray {
  void* values = nullptr;
  float* scales = nullptr;  // of FP8: one for each block
  StoredAs as = StoredAs::kFp32;
};

// Pointers are to the first element of the tensors.
struct AdamWArrays {
  StoredArray master, m, v;
  const void* grad = nullptr;
  StoredAs grad_as = StoredAs::kFp32;
  uint16_t* compute = nullptr;  // may be null
  uint64_t seed = 0, stream = 0;
  uint64_t offset = 0;  // element of the parameter that the tensors begin with
};

// Elements first to end of the tensors; `first` is a multiple of 128.
void update_blocks(const AdamWArrays& arrays, size_t first, size_t end,
                   const adamw::Factors& factors);

}  // namespace octavo::engine::cpu

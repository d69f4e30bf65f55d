#pragma once
// Keys and values of the tokens that a sequence has so far: generation computes each token once.

#include <ATen/core/Tensor.h>

#include <vector>

namespace octavo::nn {

struct KvCache {
  // `width`: channels of the keys of one token, all key heads together.
  KvCache(int64_t layers, int64_t capacity, int64_t width, const at::TensorOptions& options);

  // Adds a layer's rows at `length`, which moves when all layers have theirs.
  void append(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  // The rows of a layer, the appended ones included.
  struct Rows {
    at::Tensor keys, values;  // [length + count, width]
  };
  Rows rows(int64_t layer, int64_t count) const;

  int64_t capacity = 0;
  int64_t length = 0;                    // tokens whose rows every layer has
  std::vector<at::Tensor> keys, values;  // by layer: [capacity, width]
};

}  // namespace octavo::nn

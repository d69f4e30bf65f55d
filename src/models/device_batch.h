#pragma once

#include <ATen/core/Tensor.h>

#include "data/token_data.h"
#include "nn/sequences.h"

namespace octavo::models {

// Which rows are of which source of a mixture; undefined without one. All int32.
struct BatchSources {
  at::Tensor of_rows;  // [rows]
  at::Tensor numbers;  // [sources]: 0, 1, …
  at::Tensor tokens;   // [sources]: loss tokens of each
};

struct DeviceBatch {
  at::Tensor packed;  // all of it: what follows are parts
  nn::Tokens tokens;
  at::Tensor targets;  // [rows * length] int32
  BatchSources sources;
};

DeviceBatch to_device(const data::Batch& batch, at::Device device);
// Puts a batch of the same shape where another one is.
void replace(DeviceBatch& place, const data::Batch& batch);

}  // namespace octavo::models

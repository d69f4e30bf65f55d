#pragma once

#include <ATen/core/Tensor.h>

#include "data/token_data.h"
#include "nn/sequences.h"

namespace octavo::models {

struct DeviceBatch {
  at::Tensor packed;  // all of it: what follows are parts
  nn::Tokens tokens;
  at::Tensor targets;  // [rows * length] int32
};

DeviceBatch to_device(const data::Batch& batch, at::Device device);
// Puts a batch of the same shape where another one is.
void replace(DeviceBatch& place, const data::Batch& batch);

}  // namespace octavo::models

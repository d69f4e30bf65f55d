#pragma once

#include <ATen/core/Tensor.h>

#include "data/token_data.h"
#include "nn/sequences.h"

namespace octavo::train {

struct DeviceBatch {
  nn::Tokens tokens;
  at::Tensor targets;  // [rows * length] int32
};

DeviceBatch to_device(const data::Batch& batch, at::Device device);

}  // namespace octavo::train

#pragma once

#include <ATen/core/Tensor.h>

#include "data/token_data.h"

namespace octavo::train {

struct DeviceBatch {
  at::Tensor inputs, targets;  // [rows * length] int32
};

DeviceBatch to_device(const data::Batch& batch, at::Device device);

}  // namespace octavo::train

#include "train/batch.h"

#include <ATen/ATen.h>

namespace octavo::train {

DeviceBatch to_device(const data::Batch& batch, at::Device device) {
  const auto move = [&](const std::vector<int32_t>& ids) {
    const auto size = static_cast<int64_t>(ids.size());
    // The blob is only read; clone() and to() both leave the batch's own memory behind.
    return at::from_blob(const_cast<int32_t*>(ids.data()), {size}, at::kInt).clone().to(device);
  };
  return {{move(batch.inputs),
           nn::Sequences::from_starts(batch.starts, batch.rows * batch.length, device)},
          move(batch.targets)};
}

}  // namespace octavo::train

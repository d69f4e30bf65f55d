#include "train/batch.h"

#include <ATen/ATen.h>

#include <array>

namespace octavo::train {
namespace {

at::Tensor view_of(const std::vector<int32_t>& ids) {  // only read, and only in to_device
  return at::from_blob(const_cast<int32_t*>(ids.data()), {static_cast<int64_t>(ids.size())},
                       at::kInt);
}

}  // namespace

DeviceBatch to_device(const data::Batch& batch, at::Device device) {
  nn::Sequences sequences =
      nn::Sequences::from_starts(batch.starts, batch.rows * batch.length, at::kCPU);
  const std::array<at::Tensor, 4> parts = {view_of(batch.inputs), view_of(batch.targets),
                                           sequences.positions, sequences.starts};
  // One copy from pinned memory: a GPU takes it while the host goes on.
  int64_t total = 0;
  for (const auto& part : parts) total += part.numel();
  at::Tensor packed =
      at::empty({total}, at::TensorOptions(at::kInt).pinned_memory(device.is_cuda()));
  at::cat_out(packed, parts);
  packed = packed.to(device, /*non_blocking=*/true);
  std::array<at::Tensor, 4> on_device;
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    on_device[i] = packed.narrow(0, first, parts[i].numel());
    first += parts[i].numel();
  }
  sequences.positions = on_device[2];
  sequences.starts = on_device[3];
  return {{on_device[0], std::move(sequences)}, on_device[1]};
}

}  // namespace octavo::train

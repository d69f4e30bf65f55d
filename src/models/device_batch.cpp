#include "models/device_batch.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/error.h"

namespace octavo::models {
namespace {

at::Tensor view_of(const std::vector<int32_t>& ids) {  // only read, and only in this file
  return at::from_blob(const_cast<int32_t*>(ids.data()), {static_cast<int64_t>(ids.size())},
                       at::kInt);
}

// A batch in the CPU's memory. In one piece, pinned for a GPU, which takes it while the host goes
// on.
DeviceBatch pack(const data::Batch& batch, bool pinned) {
  nn::Sequences sequences =
      nn::Sequences::from_starts(batch.starts, batch.rows * batch.length, at::kCPU);
  std::vector<at::Tensor> parts = {view_of(batch.inputs), view_of(batch.targets),
                                   sequences.positions, sequences.starts};
  if (!batch.sources.empty()) {
    const auto sources = static_cast<int64_t>(batch.source_tokens.size());
    for (const at::Tensor& part :
         {view_of(batch.sources), at::arange(sources, at::kInt), view_of(batch.source_tokens)})
      parts.push_back(part);
  }
  int64_t total = 0;
  for (const auto& part : parts) total += part.numel();
  at::Tensor packed = at::empty({total}, at::TensorOptions(at::kInt).pinned_memory(pinned));
  at::cat_out(packed, parts);
  return {packed, {{}, std::move(sequences)}, {}, {}};
}

}  // namespace

DeviceBatch to_device(const data::Batch& batch, at::Device device) {
  DeviceBatch made = pack(batch, device.is_cuda());
  made.packed = made.packed.to(device, /*non_blocking=*/true);
  int64_t first = 0;
  const auto next_part = [&](int64_t count) {
    const at::Tensor part = made.packed.narrow(0, first, count);
    first += count;
    return part;
  };
  const int64_t tokens = batch.rows * batch.length;
  made.tokens.ids = next_part(tokens);
  made.targets = next_part(tokens);
  made.tokens.sequences.positions = next_part(tokens);
  made.tokens.sequences.starts = next_part(made.tokens.sequences.starts.numel());
  if (batch.sources.empty()) return made;
  const auto sources = static_cast<int64_t>(batch.source_tokens.size());
  made.sources = {next_part(batch.rows), next_part(sources), next_part(sources)};
  return made;
}

void replace(DeviceBatch& place, const data::Batch& batch) {
  const DeviceBatch made = pack(batch, place.packed.is_cuda());
  OCTAVO_ASSERT(made.tokens.sequences.bounds == place.tokens.sequences.bounds);
  place.packed.copy_(made.packed, /*non_blocking=*/true);
}

}  // namespace octavo::models

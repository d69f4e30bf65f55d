#pragma once
// The weights of a Hugging Face folder, written: model.safetensors, or shards and their index.

#include <functional>
#include <string>

#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

inline constexpr uint64_t kExportShardBytes = 5'000'000'000;  // as the hub's own tools cut

// `outlines` say names, dtypes and shapes; their order decides which shard a tensor is in.
// `produce` makes one tensor at a time. Returns the bytes of all files.
uint64_t write_hf_weights(const fs::path& folder, const NamedTensors& outlines,
                          const std::function<at::Tensor(const std::string& name)>& produce,
                          uint64_t max_shard_bytes = kExportShardBytes);

// Of the tensors alone.
uint64_t data_bytes(const NamedTensors& outlines);

}  // namespace octavo::checkpoint

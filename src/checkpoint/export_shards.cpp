#include "checkpoint/export_shards.h"

#include <ATen/ATen.h>

#include <cstdio>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"

namespace octavo::checkpoint {

namespace {

uint64_t outline_bytes(const at::Tensor& tensor) {
  return checked_mul(static_cast<uint64_t>(tensor.numel()),
                     static_cast<uint64_t>(tensor.element_size()), "tensor size");
}

// In order, each shard as full as it may be; a tensor larger than that has one to itself.
std::vector<NamedTensors> cut_into_shards(const NamedTensors& outlines, uint64_t limit) {
  std::vector<NamedTensors> shards(1);
  uint64_t filled = 0;
  for (const auto& item : outlines) {
    const uint64_t size = outline_bytes(item.second);
    if (!shards.back().empty() && checked_add(filled, size, "shard") > limit) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(item);
    filled += size;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

}  // namespace

uint64_t data_bytes(const NamedTensors& outlines) {
  uint64_t total = 0;
  for (const auto& item : outlines)
    total = checked_add(total, outline_bytes(item.second), "tensors of a model");
  return total;
}

uint64_t write_hf_weights(const fs::path& folder, const NamedTensors& outlines,
                          const std::function<at::Tensor(const std::string& name)>& produce,
                          uint64_t max_shard_bytes) {
  const std::map<std::string, std::string> metadata{{"format", "pt"}};  // transformers wants it
  const auto shards = cut_into_shards(outlines, max_shard_bytes);
  if (shards.size() == 1)
    return write_safetensors_streamed(folder / "model.safetensors", outlines, produce, metadata)
        .size;
  uint64_t bytes = 0;
  Json weight_map = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    bytes += write_safetensors_streamed(folder / name, shards[i], produce, metadata).size;
    for (const auto& item : shards[i]) weight_map[item.first] = name;
  }
  const Json index = {{"metadata", {{"total_size", data_bytes(outlines)}}},
                      {"weight_map", weight_map}};
  const std::string text = index.dump(2) + "\n";
  write_file_atomic(folder / "model.safetensors.index.json", text);
  return bytes + text.size();
}

}  // namespace octavo::checkpoint

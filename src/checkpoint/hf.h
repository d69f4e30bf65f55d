#pragma once
// A Hugging Face model folder: config.json and model.safetensors, or shards named by
// model.safetensors.index.json. Hostile-safe as the safetensors reader; pickles are never read.

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

struct HfModel {
  fs::path folder;
  Json config;
  std::vector<SafetensorsReader> shards;
  std::map<std::string, size_t> shard_of;  // tensor name -> index into shards

  bool contains(const std::string& name) const { return shard_of.contains(name); }
  const TensorInfo& info(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;  // read-only view; keeps its file alive
  // The tensor's pages need not stay in memory; it can still be read.
  void release(const std::string& name) const;
};

// Whether a folder has weights that open_hf_model() would read.
bool has_hf_weights(const fs::path& folder);

// Every tensor is in exactly one shard; an index that disagrees with its shards is refused.
HfModel open_hf_model(const fs::path& folder);

}  // namespace octavo::checkpoint

#pragma once
// dataset.json: what a prepared folder holds. Written last, so a folder that has it is complete.
// The list of source files is in sources.jsonl beside it, because it may be long and training never
// needs it.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/shard.h"

namespace octavo::data {

constexpr const char* kIndexName = "dataset.json";
constexpr const char* kSourcesName = "sources.jsonl";

struct SplitIndex {
  std::vector<ShardInfo> shards;
  uint64_t tokens() const;
  uint64_t documents() const;  // that start in this split
};

struct DatasetIndex {
  std::string tokenizer_name;
  ShardKind kind;
  std::string plan;  // hash of sources and options: decides whether a restart may continue
  Json options = Json::object();
  uint64_t source_files = 0, source_bytes = 0;
  std::string sources_fingerprint;
  std::map<std::string, SplitIndex> splits;
  uint64_t duplicates = 0;  // documents that were left out
  std::vector<std::string>
      extensions;  // of its sources, one for each time (extend.h); none: one time
  Json sets =
      Json::array();  // what each data set was made into (input_sets.h); none in older files

  // Of what training can see: tokenizer and shards. The same for the same tokens, wherever they
  // came from.
  std::string fingerprint() const;
};

// Of a folder, or of s3://…
bool has_index(const fs::path& folder);
DatasetIndex read_index(const fs::path& folder);
void write_index(const fs::path& folder, const DatasetIndex& index);

Json shard_to_json(const ShardInfo& shard);
ShardInfo shard_from_json(const Json& object, const std::string& source);

}  // namespace octavo::data

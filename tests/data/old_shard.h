#pragma once
// Shards as version 1 wrote them: blocks of 1 MiB, and no hashes of hashes in the header.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "data/dataset_index.h"
#include "data/shard_format.h"
#include "helpers.h"

namespace octavo::data {

// Turns a shard of today into one of version 1, in place.
inline void make_old(const fs::path& path, ShardInfo& info) {
  std::string bytes = get_file(path);
  ShardHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t data_bytes = header.tokens * header.token_bytes;
  const size_t tables = kShardHeaderBytes + (data_bytes + 7) / 8 * 8;
  bytes.resize(tables + 8 * header.documents);
  for (size_t from = 0; from < data_bytes; from += kOldShardBlockBytes) {
    const uint64_t hash = XXH3_64bits(bytes.data() + kShardHeaderBytes + from,
                                      std::min<size_t>(kOldShardBlockBytes, data_bytes - from));
    bytes.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  }
  header.version = 1;
  header.block_bytes = kOldShardBlockBytes;
  header.tables_hash = XXH3_64bits(bytes.data() + kShardHeaderBytes + data_bytes,
                                   bytes.size() - kShardHeaderBytes - data_bytes);
  header.header_hash = 0;
  std::fill_n(bytes.begin(), kShardHeaderBytes, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  header.header_hash = XXH3_64bits(bytes.data(), kShardHeaderBytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  put_file(path, bytes);
  info.bytes = bytes.size();
  const std::string hash =
      hash_bytes(std::as_bytes(std::span(bytes.data(), size_t{kShardHeaderBytes})));
  std::copy(hash.begin(), hash.end(), info.hash.begin());
}

inline void make_old(const fs::path& folder) {
  DatasetIndex index = read_index(folder);
  for (auto& [name, split] : index.splits)
    for (ShardInfo& shard : split.shards) make_old(folder / shard.name, shard);
  write_index(folder, index);
}

}  // namespace octavo::data

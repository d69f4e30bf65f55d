#pragma once
// Parts of a shard file, read with the blocks they lie in and checked while they are read. Nothing
// stays mapped or open: a data set may have 10^5 shards.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/bytes.h"
#include "data/remote_files.h"
#include "data/shard_format.h"

namespace octavo::data {

// The hashes of a version 1 shard, which take all of its tables to check: worth keeping.
using BlockHashes = std::shared_ptr<const std::vector<uint64_t>>;

struct ShardPart {
  Bytes tokens;                       // as stored
  std::vector<DamagedShard> damaged;  // what of them must not be used
  uint64_t bytes_read = 0;            // from the file, for all of it
  uint64_t check_nanoseconds = 0;
  BlockHashes hashes;  // of version 1
};

// Tokens [begin, end) of a shard. `hashes`: of an earlier call, or null. `remote`: that the file is
// one of; null: it is a file here. Damage of the whole file throws DamagedShard.
ShardPart read_part(const ShardFile& file, uint64_t begin, uint64_t end, const BlockHashes& hashes,
                    RemoteFiles* remote = nullptr);

}  // namespace octavo::data

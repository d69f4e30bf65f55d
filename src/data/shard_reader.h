#pragma once
// Parts of a shard file, read with the blocks they lie in and checked while they are read. Nothing
// stays mapped or open: a data set may have 10^5 shards.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/shard_format.h"

namespace octavo::data {

// The hashes of a version 1 shard, which take all of its tables to check: worth keeping.
using BlockHashes = std::shared_ptr<const std::vector<uint64_t>>;

// Bytes that are written once, without zeros before.
class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(size_t size)
      : data_(std::make_unique_for_overwrite<std::byte[]>(size)), end_(size) {}
  std::span<std::byte> all() const { return {data_.get() + begin_, end_ - begin_}; }
  size_t size() const { return end_ - begin_; }
  void narrow(size_t begin, size_t size) {
    begin_ += begin;
    end_ = begin_ + size;
  }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t begin_ = 0, end_ = 0;
};

struct ShardPart {
  Bytes tokens;                       // as stored
  std::vector<DamagedShard> damaged;  // what of them must not be used
  uint64_t bytes_read = 0;            // from the file, for all of it
  uint64_t check_nanoseconds = 0;
  BlockHashes hashes;  // of version 1
};

// Tokens [begin, end) of a shard. `hashes`: of an earlier call, or null. Damage of the whole file
// throws DamagedShard.
ShardPart read_part(const ShardFile& file, uint64_t begin, uint64_t end, const BlockHashes& hashes);

}  // namespace octavo::data

#pragma once
// One shard file (shard_format.h), written and mapped.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/shard_format.h"

namespace octavo::data {

// Writes a shard under a temporary name; finish() makes it durable and gives it its own.
class ShardWriter {
 public:
  ShardWriter(const fs::path& folder, std::string name, ShardKind kind);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  void begin_document();  // the next token appended is a document's first
  void append(std::span<const int32_t> tokens);
  void pad(uint64_t count, int32_t id);  // packed data: a document that is no document
  uint64_t tokens() const { return tokens_; }
  ShardInfo finish();

 private:
  void flush_block();
  void put(const void* data, size_t bytes, uint64_t offset);

  fs::path folder_, temporary_;
  std::string name_;
  ShardKind kind_;
  int fd_ = -1;
  uint64_t tokens_ = 0, written_ = kShardHeaderBytes, loss_tokens_ = 0, padding_ = 0;
  std::vector<std::byte> block_;
  std::vector<uint64_t> documents_, hashes_;
};

// Which blocks of one version of a shard file have been checked. Outlives the mapping, so that a
// shard that was unmapped for room is not hashed again; a file that changed in between starts anew.
struct ShardChecks {
  uint64_t file_bytes = 0;
  fs::file_time_type modified;
  std::vector<std::atomic<uint64_t>> verified;
  std::atomic<uint64_t> nanoseconds{0};  // that the checks took
};

// A mapped shard. Every block is checked (hash, and no id beyond the vocabulary) before its first
// token is handed out. Thread-safe.
class Shard {
 public:
  // `checks` of an earlier mapping, or null. The header is always checked, the tables unless they
  // were.
  Shard(const fs::path& folder, const ShardInfo& info, const ShardKind& kind,
        std::shared_ptr<ShardChecks> checks);
  Shard(const Shard&) = delete;  // it names parts of itself
  Shard& operator=(const Shard&) = delete;
  void read(uint64_t begin, std::span<int32_t> out) const;
  uint64_t tokens() const { return layout_.header.tokens; }
  std::span<const uint64_t> documents() const { return documents_; }
  void verify_all() const;
  const std::shared_ptr<ShardChecks>& checks() const { return checks_; }

 private:
  void check_tables() const;
  void verify_block(uint64_t block) const;

  ShardInfo info_;
  ShardKind kind_;
  ShardFile name_;
  MappedFile file_;
  ShardLayout layout_;
  std::span<const std::byte> tokens_;
  std::span<const uint64_t> documents_, hashes_;
  std::shared_ptr<ShardChecks> checks_;
};

// A quick look at a finished shard: does the file have the size and header the index (or journal)
// says?
bool shard_is_intact(const fs::path& folder, const ShardInfo& info);

}  // namespace octavo::data

#pragma once
// One shard file. Little-endian, in this order:
//   header     4096 bytes: ShardHeader, then zeros
//   tokens     u16 or u32 each, padded with zeros to 8 bytes; packed data: u32 with flags
//   documents  u64 each: index, in this shard, of the first token of every document that starts
//   here hashes     u64 each: XXH3 of every 1 MiB of tokens
// The header holds the hash of everything after the tokens and of itself, and the data set's index
// holds the hash of the header: every bit of the file is covered by a hash that leads to the index.

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace octavo::data {

constexpr uint64_t kShardHeaderBytes = 4096;
constexpr uint64_t kShardBlockBytes = uint64_t{1} << 20;

struct ShardHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t token_bytes;  // 2 or 4
  uint64_t tokens, documents, block_bytes, vocab_size;
  std::array<char, 32> tokenizer;  // hash of the tokenizer's fingerprint
  uint64_t tables_hash;            // XXH3 of everything after the tokens
  uint64_t header_hash;            // XXH3 of the header's 4096 bytes with this field zero
  uint64_t sample_length;          // of packed data; 0: plain tokens
};

// What the index knows of a shard. Kept small: a data set may have 10^5 of them.
struct ShardInfo {
  std::string name;
  uint64_t tokens = 0, documents = 0, bytes = 0;
  std::array<char, 32> hash{};            // of the header
  uint64_t loss_tokens = 0, padding = 0;  // of packed tokens
  std::string hash_text() const { return {hash.data(), hash.size()}; }
};

// What all shards of a data set share.
struct ShardKind {
  uint64_t vocab_size = 0;
  std::string tokenizer_fingerprint;
  uint64_t sample_length = 0;  // packed: every sample has as many tokens, and tokens have flags
  bool packed() const { return sample_length > 0; }
  uint32_t token_bytes() const { return vocab_size <= 65536 && !packed() ? 2 : 4; }
};

// A packed token: its id, whether it is a loss token, and whether a document begins with it.
constexpr uint32_t kLossFlag = uint32_t{1} << 31, kStartFlag = uint32_t{1} << 30;
constexpr uint32_t kIdMask = kStartFlag - 1;

// Tokens of a shard that must not be trained on, and why.
struct DamagedRange {
  std::string shard;
  uint64_t begin = 0, end = 0;  // tokens of the shard
  std::string reason;
};

// Code 5, with the place.
class DamagedShard : public Error {
 public:
  DamagedShard(const std::string& message, DamagedRange where)
      : Error(ExitCode::kDamaged, "data", message), range(std::move(where)) {}
  DamagedRange range;
};

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
  void read(uint64_t begin, std::span<int32_t> out) const;
  uint64_t tokens() const { return header_.tokens; }
  std::span<const uint64_t> documents() const { return documents_; }
  void verify_all() const;
  const std::shared_ptr<ShardChecks>& checks() const { return checks_; }

 private:
  void check_header(const ShardInfo& info, const ShardKind& kind) const;
  void check_tables() const;
  void verify_block(uint64_t block) const;
  // Tokens of it, or all.
  [[noreturn]] void damaged(const std::string& what, uint64_t begin = 0,
                            uint64_t end = UINT64_MAX) const;
  [[noreturn]] void damaged_block(uint64_t block, const std::string& what) const;

  ShardInfo info_;
  MappedFile file_;
  ShardHeader header_{};
  std::span<const std::byte> tokens_;
  std::span<const uint64_t> documents_, hashes_;
  std::shared_ptr<ShardChecks> checks_;
};

// A quick look at a finished shard: does the file have the size and header the index (or journal)
// says?
bool shard_is_intact(const fs::path& folder, const ShardInfo& info);

}  // namespace octavo::data

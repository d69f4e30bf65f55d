#pragma once
// The bytes of a shard file. Little-endian, in this order:
//   header     4096 bytes: ShardHeader, then zeros; from byte 2048 on u64 each: XXH3 of every 1024
//              hashes of blocks
//   tokens     u16 or u32 each, padded with zeros to 8 bytes; packed data: u32 with flags
//   documents  u64 each: index, in this shard, of the first token of every document that starts
//              here
//   hashes     u64 each: XXH3 of every block of tokens
// The header holds the hash of everything after the tokens and of itself, and the data set's index
// holds the hash of the header: every bit of the file is covered by a hash that leads to the index.
// To check one block, the header, 8 KiB of hashes and the block are enough.
//
// Version 1 had blocks of 1 MiB and no hashes of hashes: there a block is checked with all tables.

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace octavo::data {

constexpr uint64_t kShardHeaderBytes = 4096;
constexpr uint64_t kShardBlockBytes = uint64_t{1} << 16;     // of shards written now
constexpr uint64_t kOldShardBlockBytes = uint64_t{1} << 20;  // of version 1
constexpr uint32_t kShardVersion = 2;
constexpr uint64_t kPageHashesOffset = 2048, kPageHashes = 256, kHashesInPage = 1024;

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
static_assert(sizeof(ShardHeader) <= kPageHashesOffset);

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

// A shard file and what the index says of it: named in messages.
struct ShardFile {
  fs::path path;
  const ShardInfo& info;
  const ShardKind& kind;

  // Tokens of it, or all.
  [[noreturn]] void damaged(const std::string& what, uint64_t begin = 0,
                            uint64_t end = UINT64_MAX) const;
  [[noreturn]] void missing() const;
};

// A checked header, and where things are.
struct ShardLayout {
  ShardHeader header{};
  std::array<uint64_t, kPageHashes> page_hashes{};  // from version 2 on
  uint64_t data_bytes = 0, blocks = 0;
  uint64_t tables = 0, hashes = 0;  // offsets in the file
  bool has_pages() const { return header.version >= 2; }
  // Of a block, in the tokens.
  uint64_t block_begin(uint64_t block) const { return block * header.block_bytes; }
  uint64_t block_end(uint64_t block) const;
  uint64_t tokens_in_block() const { return header.block_bytes / header.token_bytes; }
};

// `page`: the first 4096 bytes of a file of `file_bytes`.
ShardLayout read_layout(const ShardFile& file, std::span<const std::byte> page,
                        uint64_t file_bytes);

// What is wrong with a block of tokens: its hash, or an id beyond the vocabulary; "": nothing.
std::string problem_of_block(const ShardLayout& layout, uint64_t block,
                             std::span<const std::byte> bytes, uint64_t hash);

// Of a header page; the hash is taken with its own field zero.
uint64_t header_hash(std::span<const std::byte> page);
std::array<char, 32> hash_array(std::span<const std::byte> bytes);
std::array<char, 32> hash_array(std::string_view text);
extern const std::array<char, 8> kShardMagic;

}  // namespace octavo::data

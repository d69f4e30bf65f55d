#include "data/shard_format.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/checked.h"

namespace octavo::data {

static_assert(std::endian::native == std::endian::little, "shards are mapped, not converted");

const std::array<char, 8> kShardMagic = {'O', 'C', 'T', 'O', 'K', 'E', 'N', '\n'};

namespace {

constexpr const char* kShardRemedy =
    "; restore the file from a copy, or delete the folder and run `octavo data prepare` again";

// The first token whose id (what `mask` leaves of it) is beyond the vocabulary.
template <typename Stored>
uint64_t first_beyond(std::span<const std::byte> bytes, uint64_t vocab_size, Stored mask) {
  const auto* tokens = reinterpret_cast<const Stored*>(bytes.data());
  const uint64_t count = bytes.size() / sizeof(Stored);
  Stored largest = 0;  // a plain maximum vectorises; the place is looked for only when needed
  for (uint64_t i = 0; i < count; ++i) largest = std::max<Stored>(largest, tokens[i] & mask);
  if (largest < vocab_size) return count;
  uint64_t i = 0;
  while ((tokens[i] & mask) < vocab_size) ++i;
  return i;
}

void check_header(const ShardFile& file, const ShardHeader& header,
                  std::span<const std::byte> page) {
  const ShardInfo& info = file.info;
  const ShardKind& kind = file.kind;
  if (header.magic != kShardMagic) file.damaged("its header is not that of a token shard");
  if (header.header_hash != header_hash(page))
    file.damaged("its header does not match its own hash");
  if (header.version < 1 || header.version > kShardVersion)
    fail(ExitCode::kUsage, "data", "shard ", file.path.string(), " has format version ",
         header.version, ", this program reads 1 to ", kShardVersion, "; prepare the data again");
  if (hash_array(page) != info.hash) file.damaged("its header is not the one the index names");
  if (header.tokens != info.tokens || header.documents != info.documents)
    file.damaged(str("its header has ", header.tokens, " tokens and ", header.documents,
                     " documents, the index says ", info.tokens, " and ", info.documents));
  if (header.vocab_size != kind.vocab_size || header.token_bytes != kind.token_bytes())
    file.damaged(str("its vocabulary has ", header.vocab_size, " ids of ", header.token_bytes,
                     " bytes, the index says ", kind.vocab_size, " of ", kind.token_bytes()));
  if (header.sample_length != kind.sample_length)
    file.damaged(str("its samples have ", header.sample_length, " tokens, the index says ",
                     kind.sample_length));
  const uint64_t block_bytes = header.version == 1 ? kOldShardBlockBytes : kShardBlockBytes;
  if (header.block_bytes != block_bytes)
    file.damaged(str("its blocks have ", header.block_bytes, " bytes, wanted ", block_bytes));
  if (header.tokenizer != hash_array(kind.tokenizer_fingerprint))
    file.damaged("it was made with another tokenizer than the index says");
}

}  // namespace

std::array<char, 32> hash_array(std::span<const std::byte> bytes) {
  const std::string text = hash_bytes(bytes);
  OCTAVO_ASSERT(text.size() == 32);
  std::array<char, 32> result;
  std::copy(text.begin(), text.end(), result.begin());
  return result;
}

std::array<char, 32> hash_array(std::string_view text) {
  return hash_array(std::as_bytes(std::span(text.data(), text.size())));
}

uint64_t header_hash(std::span<const std::byte> page) {
  std::array<std::byte, kShardHeaderBytes> copy;
  std::copy_n(page.begin(), kShardHeaderBytes, copy.begin());
  std::memset(copy.data() + offsetof(ShardHeader, header_hash), 0, sizeof(uint64_t));
  return XXH3_64bits(copy.data(), copy.size());
}

void ShardFile::damaged(const std::string& what, uint64_t begin, uint64_t end) const {
  throw DamagedShard(str("shard ", path.string(), " is damaged: ", what, kShardRemedy),
                     {info.name, begin, std::min(end, info.tokens), what});
}

void ShardFile::missing() const {
  throw DamagedShard(
      str("shard ", path.string(), " is named by the index but missing", kShardRemedy),
      {info.name, 0, info.tokens, "missing"});
}

uint64_t ShardLayout::block_end(uint64_t block) const {
  return std::min(block_begin(block) + header.block_bytes, data_bytes);
}

ShardLayout read_layout(const ShardFile& file, std::span<const std::byte> page,
                        uint64_t file_bytes) {
  const ShardInfo& info = file.info;
  if (file_bytes != info.bytes || file_bytes < kShardHeaderBytes)
    file.damaged(str("wanted ", info.bytes, " bytes, found ", file_bytes));
  ShardLayout layout;
  ShardHeader& header = layout.header;
  std::memcpy(&header, page.data(), sizeof header);
  check_header(file, header, page);
  std::memcpy(layout.page_hashes.data(), page.data() + kPageHashesOffset,
              sizeof layout.page_hashes);

  layout.data_bytes = checked_mul(header.tokens, uint64_t{header.token_bytes}, info.name);
  layout.blocks = ceil_div(layout.data_bytes, header.block_bytes);
  const uint64_t entries = checked_add(header.documents, layout.blocks, info.name);
  const uint64_t padded = round_up(layout.data_bytes, uint64_t{8});
  const uint64_t wanted = checked_add(checked_add(kShardHeaderBytes, padded, info.name),
                                      checked_mul(entries, uint64_t{8}, info.name), info.name);
  if (layout.data_bytes > file_bytes || wanted != file_bytes)
    file.damaged(str("its header asks for ", wanted, " bytes, found ", file_bytes));
  if (layout.has_pages() && layout.blocks > kPageHashes * kHashesInPage)
    file.damaged(
        str("it has ", layout.blocks, " blocks, wanted at most ", kPageHashes * kHashesInPage));
  layout.tables = kShardHeaderBytes + padded;
  layout.hashes = layout.tables + header.documents * 8;
  return layout;
}

std::string problem_of_block(const ShardLayout& layout, uint64_t block,
                             std::span<const std::byte> bytes, uint64_t hash) {
  const ShardHeader& header = layout.header;
  const uint64_t from = layout.block_begin(block);
  if (XXH3_64bits(bytes.data(), bytes.size()) != hash)
    return str("block ", block, " (bytes ", kShardHeaderBytes + from, " to ",
               kShardHeaderBytes + from + bytes.size(), ") does not match its hash");
  const uint32_t mask = header.sample_length > 0 ? kIdMask : UINT32_MAX;
  const uint64_t bad = header.token_bytes == 2
                           ? first_beyond<uint16_t>(bytes, header.vocab_size, UINT16_MAX)
                           : first_beyond<uint32_t>(bytes, header.vocab_size, mask);
  if (bad * header.token_bytes < bytes.size())
    return str("block ", block, ": token ", from / header.token_bytes + bad,
               " is beyond the vocabulary of ", header.vocab_size);
  return "";
}

}  // namespace octavo::data

// A token shard. Its hashes are put right here, as an attacker would, unless the first byte says
// no; that says too in what the index is to differ.
#include <xxhash.h>

#include <cstring>

#include "data/shard.h"
#include "fuzz/harness.h"

namespace {

using namespace octavo;

enum FirstByte : unsigned char {
  kKeepHashes = 1,
  kKeepTables = 2,
  kKeepBlock = 4,
  kOtherTokens = 8,
  kOtherSamples = 16,
  kOtherBytes = 32,
  kOtherName = 64,
};

// Of the tables that the header asks for, as far as they are in the file.
void seal(std::string& file, data::ShardHeader& header, unsigned char first) {
  const uint64_t room = file.size() - data::kShardHeaderBytes;
  if (header.token_bytes != 0 && header.tokens <= room / header.token_bytes) {
    const uint64_t data_bytes = header.tokens * header.token_bytes;
    const uint64_t tables = data::kShardHeaderBytes + data_bytes;
    const uint64_t blocks = (data_bytes + data::kShardBlockBytes - 1) / data::kShardBlockBytes;
    const uint64_t hashes =
        data::kShardHeaderBytes + (data_bytes + 7) / 8 * 8 + 8 * (header.documents % (1u << 20));
    if (blocks == 1 && hashes + 8 <= file.size() && (first & kKeepBlock) == 0) {
      const uint64_t hash = XXH3_64bits(file.data() + data::kShardHeaderBytes, data_bytes);
      std::memcpy(file.data() + hashes, &hash, sizeof hash);
    }
    if ((first & kKeepTables) == 0)
      header.tables_hash = XXH3_64bits(file.data() + tables, file.size() - tables);
  }
  header.header_hash = 0;
  std::memcpy(file.data(), &header, sizeof header);
  header.header_hash = XXH3_64bits(file.data(), data::kShardHeaderBytes);
  std::memcpy(file.data(), &header, sizeof header);
}

// What was read, as our own program writes it, reads back the same.
void write_again(const fs::path& folder, const data::ShardKind& kind,
                 std::span<const int32_t> tokens) {
  data::ShardWriter writer(folder, "again", kind);
  writer.begin_document();
  writer.append(tokens);
  if (kind.packed()) writer.pad(kind.sample_length % 7, 0);
  const data::ShardInfo info = writer.finish();
  const data::Shard shard(folder, info, kind, nullptr);
  std::vector<int32_t> again(tokens.size());
  shard.read(0, again);
  fuzz::check(std::equal(tokens.begin(), tokens.end(), again.begin()), "other tokens came back");
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  if (input.size() < 1 + 128) return;
  const auto first = static_cast<unsigned char>(input[0]);
  // The header's page is mostly zeros: the input has its first 128 bytes.
  std::string bytes(input.substr(1, 128));
  bytes.resize(data::kShardHeaderBytes);
  bytes += input.substr(129);
  data::ShardHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if ((first & kKeepHashes) == 0) seal(bytes, header, first);
  static fuzz::ScratchFolder folder;
  folder.write("shard", bytes);
  const std::string hash =
      hash_bytes(std::as_bytes(std::span(bytes)).first(data::kShardHeaderBytes));
  data::ShardInfo info{.name = "shard",
                       .tokens = header.tokens,
                       .documents = header.documents,
                       .bytes = bytes.size(),
                       .hash = {}};
  std::copy(hash.begin(), hash.end(), info.hash.begin());
  if ((first & kOtherBytes) != 0) ++info.bytes;
  if ((first & kOtherTokens) != 0) ++info.tokens;
  if ((first & kOtherName) != 0) info.name = "other";
  fuzz::check(
      data::shard_is_intact(folder.path(), info) == ((first & (kOtherBytes | kOtherName)) == 0),
      "a shard that is not itself");
  fuzz::refusal_of([&] {
    const uint64_t more = (first & kOtherSamples) != 0 ? 1 : 0;
    const data::ShardKind kind{header.vocab_size, "fuzz", header.sample_length + more};
    const data::Shard shard(folder.path(), info, kind, nullptr);
    shard.verify_all();
    std::vector<int32_t> tokens(std::min<uint64_t>(shard.tokens(), 4096));
    shard.read(0, tokens);
    shard.read(shard.tokens() - tokens.size(), tokens);
    const uint32_t mask = kind.packed() ? data::kIdMask : UINT32_MAX;
    for (const int32_t token : tokens)
      fuzz::check((static_cast<uint32_t>(token) & mask) < kind.vocab_size, "an id too large");
    for (const uint64_t start : shard.documents())
      fuzz::check(start < shard.tokens(), "a document that begins behind the end");
    if (input.size() % 16 == 1 && kind.sample_length < 1000)
      write_again(folder.path(), kind, tokens);
  });
}

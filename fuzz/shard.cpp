// A token shard. Its hashes are put right here, as a stranger would, unless the first byte says no.
#include <xxhash.h>

#include <cstring>

#include "data/shard.h"
#include "fuzz/harness.h"

namespace {

using namespace octavo;

// Of the tables that the header asks for, as far as they are in the file.
void seal(std::string& file, data::ShardHeader& header) {
  const uint64_t room = file.size() - data::kShardHeaderBytes;
  if (header.token_bytes != 0 && header.tokens <= room / header.token_bytes) {
    const uint64_t data_bytes = header.tokens * header.token_bytes;
    const uint64_t tables = data::kShardHeaderBytes + data_bytes;
    const uint64_t blocks = (data_bytes + data::kShardBlockBytes - 1) / data::kShardBlockBytes;
    const uint64_t hashes =
        data::kShardHeaderBytes + (data_bytes + 7) / 8 * 8 + 8 * (header.documents % (1u << 20));
    if (blocks == 1 && hashes + 8 <= file.size()) {
      const uint64_t hash = XXH3_64bits(file.data() + data::kShardHeaderBytes, data_bytes);
      std::memcpy(file.data() + hashes, &hash, sizeof hash);
    }
    header.tables_hash = XXH3_64bits(file.data() + tables, file.size() - tables);
  }
  header.header_hash = 0;
  std::memcpy(file.data(), &header, sizeof header);
  header.header_hash = XXH3_64bits(file.data(), data::kShardHeaderBytes);
  std::memcpy(file.data(), &header, sizeof header);
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  if (input.size() < 1 + 128) return;
  const bool keep_hashes = (input[0] & 1) != 0;
  // The header's page is mostly zeros: the input has its first 128 bytes.
  std::string bytes(input.substr(1, 128));
  bytes.resize(data::kShardHeaderBytes);
  bytes += input.substr(129);
  data::ShardHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (!keep_hashes) seal(bytes, header);
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
  fuzz::check(data::shard_is_intact(folder.path(), info), "a shard that is not itself");
  fuzz::refusal_of([&] {
    const data::ShardKind kind{header.vocab_size, "fuzz", header.sample_length};
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
  });
}

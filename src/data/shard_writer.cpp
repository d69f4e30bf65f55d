#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "data/shard.h"

namespace octavo::data {

ShardWriter::ShardWriter(const fs::path& folder, std::string name, ShardKind kind)
    : folder_(folder),
      temporary_(folder / (name + ".tmp")),
      name_(std::move(name)),
      kind_(std::move(kind)) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0)
    fail(ExitCode::kEnvironment, "data", "cannot create ", temporary_.string(), ": ",
         std::strerror(errno), "; check the folder's rights and free space");
  block_.reserve(kShardBlockBytes);
}

ShardWriter::~ShardWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void ShardWriter::put(const void* data, size_t bytes, uint64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      fail(ExitCode::kEnvironment, "data", "cannot write ", temporary_.string(), ": ",
           std::strerror(errno), "; free some space and run the same command to continue");
    from += done;
    bytes -= static_cast<size_t>(done);
    offset += static_cast<uint64_t>(done);
  }
}

void ShardWriter::begin_document() {
  documents_.push_back(tokens_);
}

void ShardWriter::append(std::span<const int32_t> tokens) {
  const uint32_t width = kind_.token_bytes();
  while (!tokens.empty()) {
    const size_t filled = block_.size();
    const auto part = tokens.first(std::min(tokens.size(), (kShardBlockBytes - filled) / width));
    block_.resize(filled + part.size() * width);
    uint32_t largest = 0;  // a negative id becomes a huge one
    if (width == 2) {
      auto* out = reinterpret_cast<uint16_t*>(block_.data() + filled);
      for (const int32_t token : part) {
        largest = std::max(largest, static_cast<uint32_t>(token));
        *out++ = static_cast<uint16_t>(token);
      }
    } else {
      const uint32_t mask = kind_.packed() ? kIdMask : UINT32_MAX;
      for (const int32_t token : part) {
        largest = std::max(largest, static_cast<uint32_t>(token) & mask);
        loss_tokens_ += kind_.packed() && (static_cast<uint32_t>(token) & kLossFlag) != 0 ? 1 : 0;
      }
      std::memcpy(block_.data() + filled, part.data(), part.size_bytes());
    }
    if (largest >= kind_.vocab_size)
      fail(ExitCode::kDamaged, "data", "the tokenizer gave the id ", static_cast<int32_t>(largest),
           ", wanted one from 0 to ", kind_.vocab_size - 1, "; its file contradicts itself");
    if (block_.size() == kShardBlockBytes) flush_block();
    tokens_ += part.size();
    tokens = tokens.subspan(part.size());
  }
}

void ShardWriter::pad(uint64_t count, int32_t id) {
  OCTAVO_ASSERT(kind_.packed());
  if (count == 0) return;
  std::vector<int32_t> words(count, id);
  words.front() |= static_cast<int32_t>(kStartFlag);
  append(words);
  padding_ += count;
}

void ShardWriter::flush_block() {
  if (block_.empty()) return;
  hashes_.push_back(XXH3_64bits(block_.data(), block_.size()));
  put(block_.data(), block_.size(), written_);
  written_ += block_.size();
  block_.clear();
}

namespace {

void put_page_hashes(std::span<const uint64_t> hashes, std::span<std::byte> page) {
  std::byte* to = page.data() + kPageHashesOffset;
  for (; !hashes.empty(); to += sizeof(uint64_t)) {
    const auto some = hashes.first(std::min(hashes.size(), size_t{kHashesInPage}));
    const uint64_t hash = XXH3_64bits(some.data(), some.size_bytes());
    std::memcpy(to, &hash, sizeof hash);
    hashes = hashes.subspan(some.size());
  }
}

}  // namespace

ShardInfo ShardWriter::finish() {
  flush_block();
  if (hashes_.size() > kPageHashes * kHashesInPage)
    fail(ExitCode::kUsage, "data", "wanted at most 16 GiB of tokens in a shard, found ",
         hashes_.size() * kShardBlockBytes, " bytes; lower shard_tokens");
  std::vector<std::byte> tables(round_up(written_, uint64_t{8}) - written_);  // padding
  for (const auto* table : {&documents_, &hashes_}) {
    const auto bytes = std::as_bytes(std::span(*table));
    tables.insert(tables.end(), bytes.begin(), bytes.end());
  }
  put(tables.data(), tables.size(), written_);
  written_ += tables.size();

  ShardHeader header{};
  header.magic = kShardMagic;
  header.version = kShardVersion;
  header.token_bytes = kind_.token_bytes();
  header.tokens = tokens_;
  header.documents = documents_.size();
  header.block_bytes = kShardBlockBytes;
  header.vocab_size = kind_.vocab_size;
  header.tokenizer = hash_array(kind_.tokenizer_fingerprint);
  header.sample_length = kind_.sample_length;
  header.tables_hash = XXH3_64bits(tables.data(), tables.size());
  std::array<std::byte, kShardHeaderBytes> page{};
  put_page_hashes(hashes_, page);
  std::memcpy(page.data(), &header, sizeof header);
  header.header_hash = header_hash(page);
  std::memcpy(page.data(), &header, sizeof header);
  put(page.data(), page.size(), 0);

  const int fd = std::exchange(fd_, -1);
  const bool synced = ::fsync(fd) == 0;
  if (::close(fd) != 0 || !synced)
    fail(ExitCode::kEnvironment, "data", "cannot make ", temporary_.string(),
         " durable: ", std::strerror(errno),
         "; free some space and run the same command to continue");
  fs::rename(temporary_, folder_ / name_);
  fsync_path(folder_);
  return {name_,        header.tokens, header.documents, written_, hash_array(page),
          loss_tokens_, padding_};
}

}  // namespace octavo::data

#include "data/shard.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped, not converted");

constexpr std::array<char, 8> kMagic = {'O', 'C', 'T', 'O', 'K', 'E', 'N', '\n'};
constexpr uint32_t kVersion = 1;
constexpr const char* kRemedy =
    "; restore the file from a copy, or delete the folder and run `octavo data prepare` again";

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

// `page` is the header's 4096 bytes; the hash is taken with its own field zero.
uint64_t header_hash(std::span<const std::byte> page) {
  std::array<std::byte, kShardHeaderBytes> copy;
  std::copy_n(page.begin(), kShardHeaderBytes, copy.begin());
  std::memset(copy.data() + offsetof(ShardHeader, header_hash), 0, sizeof(uint64_t));
  return XXH3_64bits(copy.data(), copy.size());
}

uint64_t block_count(uint64_t data_bytes) {
  return ceil_div(data_bytes, kShardBlockBytes);
}

fs::path existing_shard(const fs::path& folder, const ShardInfo& info) {
  fs::path path = join_inside(folder, info.name);
  if (!fs::exists(path))
    throw DamagedShard(str("shard ", path.string(), " is named by the index but missing", kRemedy),
                       {info.name, 0, info.tokens, "missing"});
  return path;
}

// Adds the time until its end.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<uint64_t>& total) : total_(total) {}
  ~Stopwatch() {
    total_ += static_cast<uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<uint64_t>& total_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

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

}  // namespace

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

ShardInfo ShardWriter::finish() {
  flush_block();
  std::vector<std::byte> tables(round_up(written_, uint64_t{8}) - written_);  // padding
  for (const auto* table : {&documents_, &hashes_}) {
    const auto bytes = std::as_bytes(std::span(*table));
    tables.insert(tables.end(), bytes.begin(), bytes.end());
  }
  put(tables.data(), tables.size(), written_);
  written_ += tables.size();

  ShardHeader header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.token_bytes = kind_.token_bytes();
  header.tokens = tokens_;
  header.documents = documents_.size();
  header.block_bytes = kShardBlockBytes;
  header.vocab_size = kind_.vocab_size;
  header.tokenizer = hash_array(kind_.tokenizer_fingerprint);
  header.sample_length = kind_.sample_length;
  header.tables_hash = XXH3_64bits(tables.data(), tables.size());
  std::array<std::byte, kShardHeaderBytes> page{};
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

Shard::Shard(const fs::path& folder, const ShardInfo& info, const ShardKind& kind,
             std::shared_ptr<ShardChecks> checks)
    : info_(info), file_(existing_shard(folder, info)), checks_(std::move(checks)) {
  const auto bytes = file_.bytes();
  const auto modified = fs::last_write_time(file_.path());
  const bool known =
      checks_ && checks_->file_bytes == bytes.size() && checks_->modified == modified;
  if (bytes.size() != info.bytes || bytes.size() < kShardHeaderBytes)
    damaged(str("wanted ", info.bytes, " bytes, found ", bytes.size()));
  std::memcpy(&header_, bytes.data(), sizeof header_);
  check_header(info, kind);

  const uint64_t data_bytes = checked_mul(header_.tokens, uint64_t{header_.token_bytes}, info.name);
  const uint64_t blocks = block_count(data_bytes);
  const uint64_t table_entries = checked_add(header_.documents, blocks, info.name);
  const uint64_t padded = round_up(data_bytes, uint64_t{8});
  const uint64_t wanted =
      checked_add(checked_add(kShardHeaderBytes, padded, info.name),
                  checked_mul(table_entries, uint64_t{8}, info.name), info.name);
  if (data_bytes > bytes.size() || wanted != bytes.size())
    damaged(str("its header asks for ", wanted, " bytes, found ", bytes.size()));
  tokens_ = bytes.subspan(kShardHeaderBytes, data_bytes);
  const auto* table = reinterpret_cast<const uint64_t*>(bytes.data() + kShardHeaderBytes + padded);
  documents_ = {table, header_.documents};
  hashes_ = {table + header_.documents, blocks};
  if (known) return;
  check_tables();
  checks_ = std::make_shared<ShardChecks>();
  checks_->file_bytes = bytes.size();
  checks_->modified = modified;
  checks_->verified = std::vector<std::atomic<uint64_t>>(ceil_div(blocks, uint64_t{64}));
}

void Shard::damaged(const std::string& what, uint64_t begin, uint64_t end) const {
  throw DamagedShard(str("shard ", file_.path().string(), " is damaged: ", what, kRemedy),
                     {info_.name, begin, std::min(end, info_.tokens), what});
}

void Shard::damaged_block(uint64_t block, const std::string& what) const {
  const uint64_t tokens = kShardBlockBytes / header_.token_bytes;
  damaged(what, block * tokens, (block + 1) * tokens);
}

void Shard::check_header(const ShardInfo& info, const ShardKind& kind) const {
  const auto page = file_.bytes().first(kShardHeaderBytes);
  if (header_.magic != kMagic) damaged("its header is not that of a token shard");
  if (header_.header_hash != header_hash(page)) damaged("its header does not match its own hash");
  if (header_.version != kVersion)
    fail(ExitCode::kUsage, "data", "shard ", file_.path().string(), " has format version ",
         header_.version, ", this program reads ", kVersion, "; prepare the data again");
  if (hash_array(page) != info.hash) damaged("its header is not the one the index names");
  if (header_.tokens != info.tokens || header_.documents != info.documents)
    damaged(str("its header has ", header_.tokens, " tokens and ", header_.documents,
                " documents, the index says ", info.tokens, " and ", info.documents));
  if (header_.vocab_size != kind.vocab_size || header_.token_bytes != kind.token_bytes())
    damaged(str("its vocabulary has ", header_.vocab_size, " ids of ", header_.token_bytes,
                " bytes, the index says ", kind.vocab_size, " of ", kind.token_bytes()));
  if (header_.sample_length != kind.sample_length)
    damaged(str("its samples have ", header_.sample_length, " tokens, the index says ",
                kind.sample_length));
  if (header_.block_bytes != kShardBlockBytes)
    damaged(str("its blocks have ", header_.block_bytes, " bytes, wanted ", kShardBlockBytes));
  if (header_.tokenizer != hash_array(kind.tokenizer_fingerprint))
    damaged("it was made with another tokenizer than the index says");
}

void Shard::check_tables() const {
  const auto tables = file_.bytes().subspan(kShardHeaderBytes + tokens_.size());
  if (XXH3_64bits(tables.data(), tables.size()) != header_.tables_hash)
    damaged("its tables (document starts, block hashes) do not match their hash");
  for (size_t i = 0; i < documents_.size(); ++i)
    if (documents_[i] >= header_.tokens || (i > 0 && documents_[i] <= documents_[i - 1]))
      damaged(str("document ", i, " starts at token ", documents_[i], " of ", header_.tokens,
                  ", wanted rising starts"));
}

void Shard::verify_block(uint64_t block) const {
  const uint64_t bit = uint64_t{1} << (block % 64);
  std::atomic<uint64_t>& word = checks_->verified[block / 64];
  if (word.load(std::memory_order_acquire) & bit) return;
  const Stopwatch stopwatch(checks_->nanoseconds);
  const uint64_t from = block * kShardBlockBytes;
  const auto bytes = tokens_.subspan(from, std::min(kShardBlockBytes, tokens_.size() - from));
  if (XXH3_64bits(bytes.data(), bytes.size()) != hashes_[block])
    damaged_block(block, str("block ", block, " (bytes ", kShardHeaderBytes + from, " to ",
                             kShardHeaderBytes + from + bytes.size(), ") does not match its hash"));
  const uint32_t mask = header_.sample_length > 0 ? kIdMask : UINT32_MAX;
  const uint64_t bad = header_.token_bytes == 2
                           ? first_beyond<uint16_t>(bytes, header_.vocab_size, UINT16_MAX)
                           : first_beyond<uint32_t>(bytes, header_.vocab_size, mask);
  if (bad * header_.token_bytes < bytes.size())
    damaged_block(block, str("block ", block, ": token ", from / header_.token_bytes + bad,
                             " is beyond the vocabulary of ", header_.vocab_size));
  word.fetch_or(bit, std::memory_order_release);
}

void Shard::read(uint64_t begin, std::span<int32_t> out) const {
  OCTAVO_ASSERT(begin <= header_.tokens && out.size() <= header_.tokens - begin);
  if (out.empty()) return;
  const uint64_t width = header_.token_bytes;
  const uint64_t last = ((begin + out.size()) * width - 1) / kShardBlockBytes;
  for (uint64_t block = begin * width / kShardBlockBytes; block <= last; ++block)
    verify_block(block);
  const std::byte* from = tokens_.data() + begin * width;
  if (width == 2) {
    const auto* stored = reinterpret_cast<const uint16_t*>(from);
    std::copy_n(stored, out.size(), out.begin());
  } else {
    std::memcpy(out.data(), from, out.size() * sizeof(int32_t));
  }
}

void Shard::verify_all() const {
  for (uint64_t block = 0; block < hashes_.size(); ++block) verify_block(block);
}

bool shard_is_intact(const fs::path& folder, const ShardInfo& info) {
  const fs::path path = join_inside(folder, info.name);
  std::error_code error;
  if (fs::file_size(path, error) != info.bytes || error || info.bytes < kShardHeaderBytes)
    return false;
  const MappedFile file(path);
  return file.bytes().size() == info.bytes &&
         hash_array(file.bytes().first(kShardHeaderBytes)) == info.hash;
}

}  // namespace octavo::data

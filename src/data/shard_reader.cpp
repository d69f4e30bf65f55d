#include "data/shard_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/checked.h"

namespace octavo::data {
namespace {

class OpenShard {
 public:
  OpenShard(const ShardFile& file, RemoteFiles* remote) : file_(file), remote_(remote) {
    if (remote != nullptr) return;
    fd_ = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0 && errno == ENOENT) file.missing();
    if (fd_ < 0)
      fail(ExitCode::kEnvironment, "data", "cannot open ", file.path.string(), ": ",
           std::strerror(errno), "; check the file's rights and the disk");
    // Reading ahead is the loader's: it knows which blocks come next, the kernel does not.
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
  }
  ~OpenShard() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenShard(const OpenShard&) = delete;
  OpenShard& operator=(const OpenShard&) = delete;

  // Of a remote one as the index says: one that is shorter cannot be read, and another does not
  // match its hashes.
  uint64_t size() const {
    if (remote_ != nullptr) return file_.info.bytes;
    struct stat found {};
    if (::fstat(fd_, &found) != 0)
      file_.damaged(str("its size cannot be read (", std::strerror(errno), ")"));
    return static_cast<uint64_t>(found.st_size);
  }

  // Of tokens or of what all tokens depend on: that is damaged when it cannot be read.
  Bytes read(uint64_t begin, uint64_t end, uint64_t first_token = 0,
             uint64_t end_token = UINT64_MAX) {
    if (remote_ != nullptr) return read_remote(begin, end, end_token != UINT64_MAX);
    Bytes bytes(end - begin);
    for (uint64_t done = 0; done < bytes.size();) {
      const ssize_t some = ::pread(fd_, bytes.all().data() + done, bytes.size() - done,
                                   static_cast<off_t>(begin + done));
      if (some < 0 && errno == EINTR) continue;
      if (some < 0)
        file_.damaged(
            str("bytes ", begin, " to ", end, " cannot be read (", std::strerror(errno), ")"),
            first_token, end_token);
      if (some == 0)
        file_.damaged(str("it ends at byte ", begin + done, ", wanted ", end), first_token,
                      end_token);
      done += static_cast<uint64_t>(some);
    }
    read_ += bytes.size();
    return bytes;
  }

  uint64_t bytes_read() const { return read_; }

  // All that was read is good: of the tokens, `tokens` that begin at `offset`, and the rest.
  void keep(uint64_t offset, std::span<const std::byte> tokens) const {
    for (const auto& [range, bytes] : fresh_) {
      if (range.begin == offset)
        remote_->keep(range, tokens);
      else if (bytes.size() > 0)
        remote_->keep(range, bytes.all());
    }
  }

 private:
  // Parts that came from the server are kept when all of them are known to be good. That of tokens
  // is the caller's by then.
  Bytes read_remote(uint64_t begin, uint64_t end, bool of_tokens) {
    const RemoteFiles::Range range{
        file_.path.string(), {file_.info.hash.begin(), file_.info.hash.end()}, begin, end};
    // One claim at a time: who held one and waited for another could wait for a process that
    // does the same.
    RemoteFiles::Part part = remote_->read(range, of_tokens);
    if (of_tokens) claim_ = std::move(part.claim);
    read_ += part.is_fresh ? part.bytes.size() : 0;
    if (part.is_fresh) {
      Bytes copy(of_tokens ? 0 : part.bytes.size());
      if (copy.size() > 0) std::ranges::copy(part.bytes.all(), copy.all().begin());
      fresh_.emplace_back(range, std::move(copy));
    }
    return std::move(part.bytes);
  }

  const ShardFile& file_;
  RemoteFiles* remote_;
  int fd_ = -1;
  uint64_t read_ = 0;
  std::vector<std::pair<RemoteFiles::Range, Bytes>> fresh_;
  Fd claim_;  // of the part of tokens
};

std::vector<uint64_t> as_hashes(const Bytes& bytes) {
  std::vector<uint64_t> hashes(bytes.size() / sizeof(uint64_t));
  std::memcpy(hashes.data(), bytes.all().data(), hashes.size() * sizeof(uint64_t));
  return hashes;
}

// Of blocks [first, end), from the pages of hashes that they lie in.
std::vector<uint64_t> paged_hashes(const ShardFile& file, const ShardLayout& layout,
                                   OpenShard& shard, uint64_t first, uint64_t end) {
  const uint64_t first_page = first / kHashesInPage, end_page = ceil_div(end, kHashesInPage);
  const uint64_t from = first_page * kHashesInPage;
  const uint64_t to = std::min(end_page * kHashesInPage, layout.blocks);
  const auto hashes = as_hashes(shard.read(layout.hashes + from * 8, layout.hashes + to * 8));
  for (uint64_t page = first_page; page < end_page; ++page) {
    const auto some = std::span(hashes).subspan((page - first_page) * kHashesInPage);
    const auto own = some.first(std::min(some.size(), size_t{kHashesInPage}));
    if (XXH3_64bits(own.data(), own.size_bytes()) != layout.page_hashes[page])
      file.damaged(str("its tables (hashes of blocks ", page * kHashesInPage, " to ",
                       page * kHashesInPage + own.size(), ") do not match their hash"),
                   page * kHashesInPage * layout.tokens_in_block(),
                   (page * kHashesInPage + own.size()) * layout.tokens_in_block());
  }
  return {hashes.begin() + static_cast<int64_t>(first - from),
          hashes.begin() + static_cast<int64_t>(end - from)};
}

BlockHashes all_hashes(const ShardFile& file, const ShardLayout& layout, OpenShard& shard) {
  const auto tables =
      shard.read(kShardHeaderBytes + layout.data_bytes, layout.hashes + layout.blocks * 8);
  if (XXH3_64bits(tables.all().data(), tables.size()) != layout.header.tables_hash)
    file.damaged("its tables (document starts, block hashes) do not match their hash");
  auto hashes = std::make_shared<std::vector<uint64_t>>(layout.blocks);
  std::memcpy(hashes->data(), tables.all().data() + tables.size() - layout.blocks * 8,
              layout.blocks * 8);
  return hashes;
}

void check_blocks(const ShardFile& file, const ShardLayout& layout, uint64_t first,
                  std::span<const uint64_t> hashes, std::span<const std::byte> bytes,
                  std::vector<DamagedShard>& damaged) {
  const uint64_t tokens = layout.tokens_in_block();
  for (uint64_t i = 0; i < hashes.size(); ++i) {
    const uint64_t block = first + i, from = layout.block_begin(block);
    const auto own =
        bytes.subspan(from - layout.block_begin(first), layout.block_end(block) - from);
    const std::string problem = problem_of_block(layout, block, own, hashes[i]);
    if (problem.empty()) continue;
    try {
      file.damaged(problem, block * tokens, (block + 1) * tokens);
    } catch (const DamagedShard& error) {
      damaged.push_back(error);
    }
  }
}

}  // namespace

ShardPart read_part(const ShardFile& file, uint64_t begin, uint64_t end, const BlockHashes& hashes,
                    RemoteFiles* remote) {
  OCTAVO_ASSERT(begin < end && end <= file.info.tokens);
  OpenShard shard(file, remote);
  const uint64_t file_bytes = shard.size();
  const Bytes page = shard.read(0, std::min(file_bytes, kShardHeaderBytes));
  const ShardLayout layout = read_layout(file, page.all(), file_bytes);
  const uint64_t width = layout.header.token_bytes;
  const uint64_t first = begin * width / layout.header.block_bytes;
  const uint64_t last = (end * width - 1) / layout.header.block_bytes;
  ShardPart part;
  std::vector<uint64_t> own;
  if (layout.has_pages()) {
    own = paged_hashes(file, layout, shard, first, last + 1);
  } else {
    part.hashes = hashes != nullptr ? hashes : all_hashes(file, layout, shard);
    if (part.hashes->size() != layout.blocks) file.damaged("it changed while it was read");
    own.assign(part.hashes->begin() + static_cast<int64_t>(first),
               part.hashes->begin() + static_cast<int64_t>(last + 1));
  }
  const uint64_t from = layout.block_begin(first);
  Bytes bytes =
      shard.read(kShardHeaderBytes + from, kShardHeaderBytes + layout.block_end(last), begin, end);
  const auto start = std::chrono::steady_clock::now();
  check_blocks(file, layout, first, own, bytes.all(), part.damaged);
  part.check_nanoseconds = static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
  if (part.damaged.empty()) shard.keep(kShardHeaderBytes + from, bytes.all());
  part.bytes_read = shard.bytes_read();
  bytes.narrow(begin * width - from, (end - begin) * width);
  part.tokens = std::move(bytes);
  return part;
}

}  // namespace octavo::data

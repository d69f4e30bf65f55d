#include "data/shard.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/checked.h"

namespace octavo::data {
namespace {

const fs::path& existing(const ShardFile& file) {
  if (!fs::exists(file.path)) file.missing();
  return file.path;
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

}  // namespace

Shard::Shard(const fs::path& folder, const ShardInfo& info, const ShardKind& kind,
             std::shared_ptr<ShardChecks> checks)
    : info_(info),
      kind_(kind),
      name_{join_inside(folder, info.name), info_, kind_},
      file_(existing(name_)),
      checks_(std::move(checks)) {
  const auto bytes = file_.bytes();
  const auto modified = fs::last_write_time(file_.path());
  const bool known =
      checks_ && checks_->file_bytes == bytes.size() && checks_->modified == modified;
  layout_ = read_layout(name_, bytes.first(std::min(bytes.size(), size_t{kShardHeaderBytes})),
                        bytes.size());
  tokens_ = bytes.subspan(kShardHeaderBytes, layout_.data_bytes);
  documents_ = {reinterpret_cast<const uint64_t*>(bytes.data() + layout_.tables),
                layout_.header.documents};
  hashes_ = {reinterpret_cast<const uint64_t*>(bytes.data() + layout_.hashes), layout_.blocks};
  if (known) return;
  check_tables();
  checks_ = std::make_shared<ShardChecks>();
  checks_->file_bytes = bytes.size();
  checks_->modified = modified;
  checks_->verified = std::vector<std::atomic<uint64_t>>(ceil_div(layout_.blocks, uint64_t{64}));
}

void Shard::check_tables() const {
  const auto tables = file_.bytes().subspan(kShardHeaderBytes + tokens_.size());
  if (XXH3_64bits(tables.data(), tables.size()) != layout_.header.tables_hash)
    name_.damaged("its tables (document starts, block hashes) do not match their hash");
  for (size_t i = 0; i < documents_.size(); ++i)
    if (documents_[i] >= layout_.header.tokens || (i > 0 && documents_[i] <= documents_[i - 1]))
      name_.damaged(str("document ", i, " starts at token ", documents_[i], " of ",
                        layout_.header.tokens, ", wanted rising starts"));
}

void Shard::verify_block(uint64_t block) const {
  const uint64_t bit = uint64_t{1} << (block % 64);
  std::atomic<uint64_t>& word = checks_->verified[block / 64];
  if (word.load(std::memory_order_acquire) & bit) return;
  const Stopwatch stopwatch(checks_->nanoseconds);
  const uint64_t from = layout_.block_begin(block);
  const std::string problem = problem_of_block(
      layout_, block, tokens_.subspan(from, layout_.block_end(block) - from), hashes_[block]);
  if (!problem.empty())
    name_.damaged(problem, block * layout_.tokens_in_block(),
                  (block + 1) * layout_.tokens_in_block());
  word.fetch_or(bit, std::memory_order_release);
}

void Shard::read(uint64_t begin, std::span<int32_t> out) const {
  OCTAVO_ASSERT(begin <= layout_.header.tokens && out.size() <= layout_.header.tokens - begin);
  if (out.empty()) return;
  const uint64_t width = layout_.header.token_bytes;
  const uint64_t block_bytes = layout_.header.block_bytes;
  const uint64_t last = ((begin + out.size()) * width - 1) / block_bytes;
  for (uint64_t block = begin * width / block_bytes; block <= last; ++block) verify_block(block);
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

#include "data/token_data.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/checked.h"
#include "base/error.h"
#include "data/block_stream.h"
#include "data/chat_template.h"
#include "data/dataset_index.h"
#include "data/mixed_tokens.h"

namespace octavo::data {
namespace {

// A request takes tens of milliseconds, in which its thread does nothing: so many for each thread
// that would read a disk.
constexpr int kRemoteThreads = 4;
constexpr uint64_t kRemoteBlockBytes = uint64_t{1} << 20, kRemoteBlocks = 32;

bool has_split(const DatasetIndex& index, const std::string& split) {
  const auto found = index.splits.find(split);
  return found != index.splits.end() && found->second.tokens() > 0;
}

// Memory: the index, one bit per verified block of the shards mapped so far, at most `max_mapped`
// maps, and the streams' caches.
class ShardedTokenData : public TokenData {
 public:
  ShardedTokenData(const fs::path& folder, const DatasetIndex& index, const std::string& split,
                   int max_mapped, const LocalCache& cache)
      : max_mapped_(static_cast<size_t>(max_mapped)) {
    split_.folder = folder;
    split_.remote = remote_files_of(folder, cache);
    const auto found = index.splits.find(split);
    if (!has_split(index, split)) {
      std::string names;
      for (const auto& item : index.splits) names += (names.empty() ? "" : ", ") + item.first;
      fail(ExitCode::kUsage, "data", "wanted the split '", split, "' of ", folder.string(),
           ", found: ", names, "; prepare the data with another val_fraction");
    }
    fingerprint_ = index.fingerprint();
    tokenizer_name_ = index.tokenizer_name;
    if (index.options.contains("chat_template"))
      chat_template_ = template_named(json_string(index.options, "chat_template", folder.string()),
                                      folder.string());
    split_.kind = index.kind;
    split_.shards = found->second.shards;
    std::erase_if(split_.shards, [](const ShardInfo& shard) { return shard.tokens == 0; });
    split_.begins.reserve(split_.shards.size());
    for (const ShardInfo& shard : split_.shards) {
      split_.begins.push_back(split_.tokens);
      split_.tokens += shard.tokens;
    }
    checks_.resize(split_.shards.size());
  }

  uint64_t tokens() const override { return split_.tokens; }
  int64_t vocab_size() const override { return static_cast<int64_t>(split_.kind.vocab_size); }
  std::string tokenizer_name() const override { return tokenizer_name_; }
  std::string tokenizer_fingerprint() const override { return split_.kind.tokenizer_fingerprint; }
  std::string fingerprint() const override { return fingerprint_; }
  int64_t sample_length() const override { return static_cast<int64_t>(split_.kind.sample_length); }
  std::optional<config::ChatTemplate> chat_template() const override { return chat_template_; }

  void read(uint64_t begin, std::span<int32_t> out) const override {
    if (begin > split_.tokens || out.size() > split_.tokens - begin)
      fail(ExitCode::kUsage, "data", "wanted tokens ", begin, " to ", begin, " + ", out.size(),
           " of ", split_.folder.string(), ", which has ", split_.tokens,
           "; the position belongs to another data set");
    if (is_remote()) return remote_stream().read(begin, out);
    while (!out.empty()) {
      const size_t shard = split_.shard_of(begin);
      const uint64_t inside = begin - split_.begins[shard];
      const auto count = std::min<uint64_t>(out.size(), split_.shards[shard].tokens - inside);
      read_shard(shard, inside, out.first(count));
      begin += count;
      out = out.subspan(count);
    }
  }

  uint64_t token_bytes() const override { return split_.kind.token_bytes(); }
  bool is_remote() const override { return split_.remote != nullptr; }

  std::unique_ptr<TokenStream> stream(const StreamOptions& options) const override {
    StreamOptions own = options;
    if (own.threads > 0) {
      const int all = is_remote() ? own.threads * kRemoteThreads : own.threads;
      own.threads = std::max(1, all / own.sharers);
    }
    return std::make_unique<BlockStream>(
        split_, own, [this](size_t shard, const DamagedShard& error) { remember(shard, error); },
        [this](uint64_t nanoseconds) { stream_check_ns_ += nanoseconds; });
  }

  std::vector<DamagedRange> damage() const override {
    const std::lock_guard lock(mutex_);
    return damage_;
  }

  size_t damage_count() const override { return damage_count_; }

  double check_seconds() const override {
    const std::lock_guard lock(mutex_);
    uint64_t nanoseconds = stream_check_ns_;
    for (const auto& checks : checks_)
      if (checks != nullptr) nanoseconds += checks->nanoseconds;
    return static_cast<double>(nanoseconds) / 1e9;
  }

 private:
  struct Mapped {
    std::shared_ptr<const Shard> shard;
    std::list<size_t>::iterator use;
  };

  void read_shard(size_t number, uint64_t begin, std::span<int32_t> out) const {
    try {
      map_shard(number)->read(begin, out);
    } catch (const DamagedShard& error) {
      remember(number, error);
      throw;
    }
  }

  void remember(size_t number, const DamagedShard& error) const {
    const std::lock_guard lock(mutex_);
    const DamagedRange& found = error.range;
    const bool known = std::any_of(damage_.begin(), damage_.end(), [&](const DamagedRange& range) {
      return range.shard == found.shard && range.begin == found.begin && range.end == found.end;
    });
    if (known) return;
    damage_.push_back(found);
    damage_count_ = damage_.size();
    if (found.end - found.begin == split_.shards[number].tokens) broken_.emplace(number, error);
  }

  // For who reads here and there: nothing of a remote shard can be mapped.
  TokenStream& remote_stream() const {
    std::call_once(remote_once_, [this] {
      remote_stream_ = stream({.block_tokens = kRemoteBlockBytes / token_bytes(),
                               .cached_blocks = kRemoteBlocks,
                               .threads = 0});
    });
    return *remote_stream_;
  }

  std::shared_ptr<const Shard> map_shard(size_t number) const {
    const std::lock_guard lock(mutex_);
    if (const auto found = broken_.find(number); found != broken_.end()) throw found->second;
    if (const auto found = mapped_.find(number); found != mapped_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.shard;
    }
    auto shard = std::make_shared<const Shard>(split_.folder, split_.shards[number], split_.kind,
                                               checks_[number]);
    checks_[number] = shard->checks();
    while (mapped_.size() >= max_mapped_) {
      mapped_.erase(uses_.back());
      uses_.pop_back();
    }
    uses_.push_front(number);
    mapped_[number] = {shard, uses_.begin()};
    return shard;
  }

  SplitShards split_;
  size_t max_mapped_;
  std::string tokenizer_name_, fingerprint_;
  std::optional<config::ChatTemplate> chat_template_;
  mutable std::atomic<uint64_t> stream_check_ns_{0};
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<ShardChecks>> checks_;
  mutable std::vector<DamagedRange> damage_;
  mutable std::atomic<size_t> damage_count_{0};
  mutable std::unordered_map<size_t, DamagedShard> broken_;  // as a whole: not tried again
  mutable std::list<size_t> uses_;                           // most recently used first
  mutable std::unordered_map<size_t, Mapped> mapped_;
  mutable std::once_flag remote_once_;
  mutable std::unique_ptr<TokenStream> remote_stream_;
};

// Of data that has no blocks of its own.
class PlainStream final : public TokenStream {
 public:
  explicit PlainStream(const TokenData& data) : data_(data) {}
  void read(uint64_t begin, std::span<int32_t> out) override { data_.read(begin, out); }

 private:
  const TokenData& data_;
};

}  // namespace

std::unique_ptr<TokenStream> TokenData::stream(const StreamOptions&) const {
  return std::make_unique<PlainStream>(*this);
}

Order order_for(const TokenData& data, int64_t length, uint64_t step_samples) {
  const uint64_t bytes =
      checked_mul(static_cast<uint64_t>(length), data.token_bytes(), "max_seq_length");
  return order_for(sample_count(data, length), bytes, step_samples);
}

std::shared_ptr<TokenData> TokenData::open(const fs::path& folder, const std::string& split,
                                           int max_mapped_shards, const LocalCache& cache) {
  if (max_mapped_shards < 1)
    fail(ExitCode::kUsage, "data", "wanted room for at least 1 mapped shard, found ",
         max_mapped_shards, "; the default is ", kMaxMappedShards);
  return std::make_shared<ShardedTokenData>(folder, read_index(folder), split, max_mapped_shards,
                                            cache);
}

TokenData::Splits TokenData::open_splits(const fs::path& folder, const LocalCache& cache) {
  const DatasetIndex index = read_index(folder);
  const auto one = [&](const char* split) {
    return std::make_shared<ShardedTokenData>(folder, index, split, kMaxMappedShards, cache);
  };
  return {one("train"), has_split(index, "val") ? one("val") : nullptr};
}

uint64_t sample_count(uint64_t tokens, int64_t length) {
  if (length < 1)
    fail(ExitCode::kUsage, "data", "wanted samples of at least 1 token, found max_seq_length ",
         length, "; set it to 1 or more");
  return tokens == 0 ? 0 : (tokens - 1) / static_cast<uint64_t>(length);
}

uint64_t sample_count(const TokenData& data, int64_t length) {
  if (const MixedTokens* mixed = data.mixed(); mixed != nullptr) {
    uint64_t sum = 0;
    for (const MixedTokens::Source& source : mixed->sources())
      sum = checked_add(sum, sample_count(*source.data, length), "samples");
    return sum;
  }
  const int64_t packed = data.sample_length();
  if (packed == 0) return sample_count(data.tokens(), length);
  if (packed != length)
    fail(ExitCode::kUsage, "data", "wanted max_seq_length ", packed,
         ", which this data was packed for, found ", length,
         "; set max_seq_length, or prepare the data for the other length");
  return data.tokens() / static_cast<uint64_t>(length);
}

}  // namespace octavo::data

#include "data/block_stream.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace octavo::data {
namespace {

// Of the blocks read lately, those that had been dropped before: the cache grows from one in eight
// on, and what cannot grow is said when it is most of them.
constexpr double kRecentBlocks = 64, kFewReturns = 0.125, kManyReturns = 0.5;
constexpr uint64_t kMostRemembered = uint64_t{1} << 16;  // blocks that were dropped: their numbers
constexpr size_t kKeptHashes = 1024;  // shards of version 1 whose hashes are kept: 2 KB each

void widen(std::span<const std::byte> stored, uint32_t width, std::span<int32_t> out) {
  if (width == 2) {
    const auto* tokens = reinterpret_cast<const uint16_t*>(stored.data());
    std::copy_n(tokens, out.size(), out.begin());
  } else {
    std::memcpy(out.data(), stored.data(), out.size_bytes());
  }
}

}  // namespace

size_t SplitShards::shard_of(uint64_t token) const {
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), token) -
                             begins.begin()) -
         1;
}

BlockStream::BlockStream(const SplitShards& split, const StreamOptions& options,
                         std::function<void(size_t, const DamagedShard&)> on_damage,
                         std::function<void(uint64_t)> on_check)
    : split_(split),
      options_(options),
      on_damage_(std::move(on_damage)),
      on_check_(std::move(on_check)),
      capacity_(options.cached_blocks) {
  OCTAVO_ASSERT(options.block_tokens > 0 && options.cached_blocks > 0);
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { run(); });
}

BlockStream::~BlockStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BlockStream::read(uint64_t begin, std::span<int32_t> out) {
  OCTAVO_ASSERT(begin <= split_.tokens && out.size() <= split_.tokens - begin);
  const uint32_t width = split_.kind.token_bytes();
  while (!out.empty()) {
    const uint64_t number = begin / options_.block_tokens;
    const uint64_t first = number * options_.block_tokens;
    const auto content = block(number);
    const uint64_t end = first + content->tokens.size() / width;
    const uint64_t count = std::min<uint64_t>(out.size(), end - begin);
    for (const Damage& damage : content->damage)
      if (begin < damage.end && begin + count > damage.begin) throw damage.error;
    widen(content->tokens.all().subspan((begin - first) * width), width, out.first(count));
    begin += count;
    out = out.subspan(count);
  }
}

bool BlockStream::expect(uint64_t begin) {
  const uint64_t number = begin / options_.block_tokens;
  const std::lock_guard lock(mutex_);
  if (blocks_.contains(number)) return true;
  if (threads_.empty() || unused_ >= options_.expected_blocks) return false;
  add(number);
  queue_.push_back(number);
  wanted_.notify_one();
  return true;
}

uint64_t BlockStream::bytes_read() const {
  const std::lock_guard lock(mutex_);
  return bytes_read_;
}

std::shared_ptr<const BlockStream::Content> BlockStream::block(uint64_t number) {
  std::unique_lock lock(mutex_);
  State state;
  for (;;) {
    if (!blocks_.contains(number)) add(number);
    state = blocks_.at(number).state;
    if (state == State::kUnused || state == State::kUsed) break;
    if (state == State::kQueued)
      load(number, lock);  // nobody else has begun
    else
      ready_.wait(lock);  // and look again: it may have come and gone
  }
  Block& block = blocks_.at(number);
  if (state == State::kUsed) {
    uses_.splice(uses_.begin(), uses_, block.use);
    return block.content;
  }
  --unused_;
  if (block.error) {
    const std::exception_ptr error = block.error;
    blocks_.erase(number);  // it may be better next time
    std::rethrow_exception(error);
  }
  block.state = State::kUsed;
  uses_.push_front(number);
  block.use = uses_.begin();
  const auto content = block.content;
  make_room();
  return content;
}

// Blocks that come back soon after they were dropped show that the cache is too small: a rank's
// samples of a mixture's source come from more places of it than its share of a step does. A few
// come back in any case, of the next epoch.
void BlockStream::add(uint64_t number) {
  blocks_[number];
  ++unused_;
  const bool comes_back = dropped_.erase(number) > 0;
  return_share_ += ((comes_back ? 1.0 : 0.0) - return_share_) / kRecentBlocks;
  if (!comes_back || return_share_ < kFewReturns) return;
  if (capacity_ < options_.most_blocks) {
    ++capacity_;
  } else if (!said_ && return_share_ > kManyReturns) {
    said_ = true;
    log_warn(str("data: ", split_.folder.string(), ": ", capacity_,
                 " blocks of it are kept, and more are in use: they are read again and again; "
                 "larger batches on a rank, or fewer sources in the mixture, need fewer"));
  }
}

void BlockStream::make_room() {
  while (uses_.size() > 1 && uses_.size() + unused_ > capacity_) {
    remember_dropped(uses_.back());
    blocks_.erase(uses_.back());
    uses_.pop_back();
  }
}

void BlockStream::remember_dropped(uint64_t number) {
  if (options_.most_blocks <= options_.cached_blocks) return;
  // A step draws from a sixteenth of the blocks at most (order.cpp), and an epoch from all.
  const uint64_t most = std::min(kMostRemembered, split_.tokens / options_.block_tokens / 8 + 1);
  dropped_[number] = ++drops_made_;
  drops_.emplace_back(number, drops_made_);
  if (drops_.size() <= most) return;
  const auto [first, drop] = drops_.front();
  drops_.pop_front();
  const auto found = dropped_.find(first);
  if (found != dropped_.end() && found->second == drop) dropped_.erase(found);
}

// Called and left with the lock held.
void BlockStream::load(uint64_t number, std::unique_lock<std::mutex>& lock) {
  Block& block = blocks_.at(number);  // stays where it is: only used ones are taken out
  block.state = State::kLoading;
  lock.unlock();
  std::shared_ptr<const Content> content;
  std::exception_ptr error;
  try {
    content = std::make_shared<const Content>(load_content(number));
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  block.content = std::move(content);
  block.error = error;
  block.state = State::kUnused;
  make_room();
  ready_.notify_all();
}

BlockStream::Content BlockStream::load_content(uint64_t number) {
  const uint64_t begin = number * options_.block_tokens;
  const uint64_t end = std::min(begin + options_.block_tokens + options_.overlap, split_.tokens);
  const size_t whole = (end - begin) * split_.kind.token_bytes();
  Content content;
  for (uint64_t from = begin; from < end;) {
    const size_t shard = split_.shard_of(from);
    const uint64_t first = split_.begins[shard];
    const uint64_t to = std::min(end, first + split_.shards[shard].tokens);
    add_part(shard, from - first, to - first, whole, content);
    from = to;
  }
  return content;
}

// Tokens [begin, end) of a shard, behind what is there.
void BlockStream::add_part(size_t shard, uint64_t begin, uint64_t end, size_t whole,
                           Content& content) {
  const uint64_t first = split_.begins[shard];
  try {
    ShardPart part =
        read_part(split_.file(shard), begin, end, known_hashes(shard), split_.remote.get());
    for (const DamagedShard& error : part.damaged) {
      on_damage_(shard, error);
      content.damage.push_back({first + error.range.begin, first + error.range.end, error});
    }
    on_check_(part.check_nanoseconds);
    keep_hashes(shard, part.hashes);
    {
      const std::lock_guard lock(mutex_);
      bytes_read_ += part.bytes_read;
    }
    if (part.tokens.size() == whole) {  // nearly always: of one shard
      content.tokens = std::move(part.tokens);
      return;
    }
    if (content.tokens.size() == 0) content.tokens = Bytes(whole);
    std::ranges::copy(part.tokens.all(), content.tokens.all().data() + content.filled);
  } catch (const DamagedShard& error) {
    on_damage_(shard, error);
    content.damage.push_back({first + begin, first + end, error});  // nothing of it was read
    if (content.tokens.size() == 0) content.tokens = Bytes(whole);
  }
  content.filled += (end - begin) * split_.kind.token_bytes();
}

BlockHashes BlockStream::known_hashes(size_t shard) {
  const std::lock_guard lock(mutex_);
  const auto found = hashes_.find(shard);
  return found == hashes_.end() ? nullptr : found->second;
}

void BlockStream::keep_hashes(size_t shard, const BlockHashes& hashes) {
  if (hashes == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (hashes_.size() >= kKeptHashes) hashes_.clear();
  hashes_.emplace(shard, hashes);
}

void BlockStream::run() {
  ::pthread_setname_np(::pthread_self(), "octavo-read");
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const uint64_t number = queue_.front();
    queue_.pop_front();
    const auto found = blocks_.find(number);
    if (found != blocks_.end() && found->second.state == State::kQueued) load(number, lock);
  }
}

}  // namespace octavo::data

#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/random.h"

namespace octavo::tokenizer {
namespace {

constexpr size_t kMaxProbes = 1024;
constexpr int kMaxSeeds = 16;
constexpr size_t kShortWord = 48;  // symbols; above, the heap is quicker than scanning
constexpr uint32_t kNowhere = UINT32_MAX;
// Of a long word: symbols that are merged at a time, and of them those that the next part has too.
constexpr size_t kPartSymbols = 16384, kOverlap = 1024;

// The first `length` bytes at `p` in three words, the rest zero.
struct Key {
  uint64_t word[3];

  Key(const char* p, size_t length, const char* text_end) {
    if (text_end - p >= 24) {
      std::memcpy(word, p, 24);
      for (size_t i = 0; i < 3; ++i) {
        const size_t used = length > 8 * i ? length - 8 * i : 0;
        word[i] &= used >= 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * used) - 1;
      }
    } else {
      std::memset(word, 0, sizeof(word));
      std::memcpy(word, p, length);
    }
  }
  size_t slot(size_t length, size_t bits) const {
    uint64_t hash = (word[0] + length) * 0x9E3779B97F4A7C15u;
    hash = (std::rotl(hash, 29) ^ word[1]) * 0xBF58476D1CE4E5B9u;
    hash = (std::rotl(hash, 31) ^ word[2]) * 0x94D049BB133111EBu;
    return hash >> (64 - bits);
  }
  bool equals(const uint64_t* other) const {
    return ((word[0] ^ other[0]) | (word[1] ^ other[1]) | (word[2] ^ other[2])) == 0;
  }
};
static_assert(std::endian::native == std::endian::little, "Key's masks keep the first bytes");

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges.size() * 2, 16));
  mask_ = slots - 1;
  results_.reserve(merges.size());
  for (const Merge& merge : merges) results_.push_back(merge.result);
  for (int attempt = 0; attempt < kMaxSeeds; ++attempt, seed_ = mix64(seed_ + 1)) {
    slots_.assign(slots, {kFree, kNone});
    if (fill(merges)) return;
  }
  fail(ExitCode::kDamaged, "tokenizer", "wanted merges that can be hashed, found ", merges.size(),
       " that collide under ", kMaxSeeds, " hash functions; the file is not a real tokenizer");
}

bool MergeTable::fill(std::span<const Merge> merges) {
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = key_of(merges[rank].left, merges[rank].right);
    size_t slot = slot_of(key), probes = 0;
    while (slots_[slot].key != kFree && slots_[slot].key != key) {
      if (++probes > kMaxProbes) return false;
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = {key, rank};
  }
  return true;
}

Bpe::Scratch::Scratch() : cache_(size_t{1} << kCacheBits), buffer_(kBufferIds + kMaxIds) {}

Bpe::Bpe(std::span<const Merge> merges, Symbols symbols, ByteMap whole)
    : merges_(merges), symbols_(std::move(symbols)), whole_(std::move(whole)) {}

void Bpe::encode(std::string_view text, std::span<const uint32_t> ends, Scratch& scratch,
                 std::vector<TokenId>& out) const {
  const char* const text_end = text.data() + text.size();
  TokenId* const buffer = scratch.buffer_.data();
  size_t filled = 0;
  const auto flush = [&] {
    out.insert(out.end(), buffer, buffer + filled);
    filled = 0;
  };
  const char* word = text.data();
  for (const uint32_t end_offset : ends) {
    const char* const end = text.data() + end_offset;
    const auto length = static_cast<size_t>(end - word);
    if (length > 8 * Scratch::kKeyWords) {
      encode_word({word, length}, scratch);
      flush();
      out.insert(out.end(), scratch.ids_.begin(), scratch.ids_.end());
      word = end;
      continue;
    }
    const Key key(word, length, text_end);
    Scratch::Cached& cached = scratch.cache_[key.slot(length, Scratch::kCacheBits)];
    if (cached.length != length || !key.equals(cached.key)) {
      encode_word({word, length}, scratch);
      if (scratch.ids_.size() > Scratch::kMaxIds) {
        flush();
        out.insert(out.end(), scratch.ids_.begin(), scratch.ids_.end());
        word = end;
        continue;
      }
      std::memcpy(cached.key, key.word, sizeof(cached.key));
      cached.length = static_cast<uint8_t>(length);
      cached.count = static_cast<uint8_t>(scratch.ids_.size());
      std::copy(scratch.ids_.begin(), scratch.ids_.end(), cached.ids);
    }
    // All eight are copied, whatever the count: a fixed size is one pair of vector moves.
    std::memcpy(buffer + filled, cached.ids, sizeof(cached.ids));
    filled += cached.count;
    if (filled > Scratch::kBufferIds - Scratch::kMaxIds) flush();
    word = end;
  }
  flush();
}

void Bpe::encode_word(std::string_view word, Scratch& scratch) const {
  scratch.ids_.clear();
  if (const TokenId id = whole_.find(word); id != ByteMap::kNone) {
    scratch.ids_.push_back(id);
    return;
  }
  symbols_.append(word, scratch.ids_);
  if (scratch.ids_.size() < 2) return;
  if (scratch.ids_.size() <= kShortWord)
    merge_short(scratch);
  else
    merge_long(scratch);
}

void Bpe::merge_short(Scratch& scratch) const {
  TokenId* const ids = scratch.ids_.data();
  size_t count = scratch.ids_.size();
  uint32_t ranks[kShortWord];  // of the pair that starts at each symbol
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.rank(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == MergeTable::kNone) break;
    ids[best] = merges_.result(ranks[best]);
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(ranks + std::min(best + 2, count - 1), ranks + count - 1, ranks + best + 1);
    --count;
    if (best > 0) ranks[best - 1] = merges_.rank(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = merges_.rank(ids[best], ids[best + 1]);
  }
  scratch.ids_.resize(count);
}

// In parts: a heap of a word of megabytes would fall out of the processor's caches and cost more
// for each byte the longer the word. Ids are those of their symbols if and only if every two
// neighbours are those of theirs, as the first merge across a border of ids would be made by the
// two beside it alone too. So a part may follow another when it begins with the id that the other
// has there.
void Bpe::merge_long(Scratch& scratch) const {
  auto &symbols = scratch.symbols_, &ids = scratch.ids_, &merged = scratch.merged_;
  symbols.swap(ids);
  ids.clear();
  const std::span<const TokenId> all(symbols);
  size_t begin = 0, window = kPartSymbols;
  const auto merge_from = [&](size_t from) {
    merge_part(all.subspan(from, std::min(window, all.size() - from)), scratch);
  };
  for (merge_from(begin); begin + window < all.size();) {
    const auto behind = std::upper_bound(scratch.starts_.begin(), scratch.starts_.end(),
                                         static_cast<uint32_t>(window - kOverlap));
    const size_t kept = static_cast<size_t>(behind - scratch.starts_.begin()) - 1;
    const size_t next = begin + scratch.starts_[kept];
    const TokenId expected = merged[kept];
    ids.insert(ids.end(), merged.begin(), merged.begin() + static_cast<ptrdiff_t>(kept));
    merge_from(next);
    if (kept > 0 && merged.front() == expected) {
      begin = next;
      continue;
    }
    ids.resize(ids.size() - kept);
    window *= 2;  // an id as long as the part, or one that hangs on what is far behind it
    merge_from(begin);
  }
  ids.insert(ids.end(), merged.begin(), merged.end());
}

void Bpe::merge_part(std::span<const TokenId> symbols, Scratch& scratch) const {
  auto &ranks = scratch.ranks_, &previous = scratch.previous_, &next = scratch.next_;
  auto& ids = scratch.merged_;
  auto& heap = scratch.heap_;
  const size_t count = symbols.size();
  ids.assign(symbols.begin(), symbols.end());
  scratch.starts_.clear();
  OCTAVO_ASSERT(count < kNowhere);
  ranks.assign(count, MergeTable::kNone);
  previous.resize(count);
  next.resize(count);
  heap.clear();
  const auto entry = [&ranks](uint32_t at) { return uint64_t{ranks[at]} << 32 | at; };
  for (uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kNowhere : i - 1;
    next[i] = i + 1 == count ? kNowhere : i + 1;
    if (i + 1 < count) ranks[i] = merges_.rank(ids[i], ids[i + 1]);
    if (ranks[i] != MergeTable::kNone) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto update = [&](uint32_t at) {
    ranks[at] = next[at] == kNowhere ? MergeTable::kNone : merges_.rank(ids[at], ids[next[at]]);
    if (ranks[at] == MergeTable::kNone) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (ranks[at] != rank) continue;  // the pair is gone: a rank belongs to one pair
    const uint32_t right = next[at];
    ids[at] = merges_.result(rank);
    ranks[right] = MergeTable::kNone;
    next[at] = next[right];
    if (next[at] != kNowhere) previous[next[at]] = at;
    update(at);
    if (previous[at] != kNowhere) update(previous[at]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kNowhere; i = next[i]) {
    scratch.starts_.push_back(i);
    ids[kept++] = ids[i];
  }
  ids.resize(kept);
}

}  // namespace octavo::tokenizer

#pragma once
// Byte-pair encoding of single words. Of all adjacent pairs that the file can merge, the one with
// the lowest rank is merged, leftmost first, until none is left. Short words scan for it; long ones
// keep a heap, so that n bytes take O(n log n) whatever they are.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_map.h"
#include "tokenizer/symbols.h"
#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

struct Merge {
  TokenId left, right, result;
};

// (left, right) to rank, flat and open-addressed.
class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A pair that appears twice keeps its last rank, as in the Hugging Face library.
  explicit MergeTable(std::span<const Merge> merges);
  uint32_t rank(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].rank;
      if (slots_[slot].key == kFree) return kNone;
    }
  }
  TokenId result(uint32_t rank) const { return results_[rank]; }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;  // ids are not negative: no pair has this key
  struct Slot {
    uint64_t key;
    uint32_t rank;
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const uint64_t mixed = (key ^ seed_) * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed >> 32) & mask_;
  }
  bool fill(std::span<const Merge> merges);

  std::vector<Slot> slots_;
  std::vector<TokenId> results_;
  size_t mask_ = 0;
  uint64_t seed_ = 0;
};

class Bpe {
 public:
  // What one thread needs: the words it saw last with their ids, and working memory.
  class Scratch {
   public:
    Scratch();

   private:
    friend class Bpe;
    static constexpr size_t kKeyWords = 3, kMaxIds = 8, kCacheBits = 15, kBufferIds = 4096;
    struct Cached {
      uint64_t key[kKeyWords] = {};
      uint8_t length = 0;  // 0: free
      uint8_t count = 0;
      TokenId ids[kMaxIds] = {};
    };
    std::vector<Cached> cache_;
    std::vector<TokenId> ids_;
    std::vector<TokenId> symbols_, merged_;  // of a long word, and of one part of it
    std::vector<uint32_t> starts_;           // in symbols, of the ids in merged_
    std::vector<uint32_t> ranks_, previous_, next_;
    std::vector<uint64_t> heap_;
    std::vector<TokenId> buffer_;
  };

  // `whole`: words that are tokens as they stand, whatever the merges say (ignore_merges); may be
  // empty.
  Bpe(std::span<const Merge> merges, Symbols symbols, ByteMap whole);

  // The words of `text` end at `ends`. Appends their ids. Thread-safe with a Scratch of one's own.
  void encode(std::string_view text, std::span<const uint32_t> ends, Scratch& scratch,
              std::vector<TokenId>& out) const;

 private:
  // Leaves the ids of the word in scratch.ids_.
  void encode_word(std::string_view word, Scratch& scratch) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  // Leaves the ids of some symbols in scratch.merged_, and where they start in scratch.starts_.
  void merge_part(std::span<const TokenId> symbols, Scratch& scratch) const;

  MergeTable merges_;
  Symbols symbols_;
  ByteMap whole_;
};

}  // namespace octavo::tokenizer

#include "tokenizer/byte_map.h"

#include <cstring>

#include "base/error.h"
#include "base/random.h"

namespace octavo::tokenizer {
namespace {

constexpr size_t kMaxSeedProbes = 256;
constexpr uint64_t kMaxByteSeeds = 16;

uint64_t hash_key(std::string_view key, uint64_t seed) {
  uint64_t hash = mix64(seed + key.size());
  while (key.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, key.data(), 8);
    hash = mix64(hash ^ word);
    key.remove_prefix(8);
  }
  uint64_t tail = 0;
  if (!key.empty()) std::memcpy(&tail, key.data(), key.size());
  return mix64(hash ^ tail);
}

}  // namespace

bool ByteMap::place(uint32_t index) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_key(key_of(entries_[index]), seed_) & mask;
  for (size_t probe = 0; probe < kMaxSeedProbes; ++probe, slot = (slot + 1) & mask) {
    if (slots_[slot] != 0) continue;
    slots_[slot] = index + 1;
    return true;
  }
  return false;
}

void ByteMap::rebuild(size_t slots) {
  for (uint64_t attempt = 0; attempt < kMaxByteSeeds; ++attempt) {
    slots_.assign(slots, 0);
    bool placed = true;
    for (uint32_t i = 0; i < entries_.size() && placed; ++i) placed = place(i);
    if (placed) return;
    ++seed_;
  }
  fail(ExitCode::kDamaged, "tokenizer", "wanted a vocabulary that can be hashed, found ",
       entries_.size(), " tokens that collide under ", kMaxByteSeeds,
       " hash functions; the file is not a real vocabulary");
}

bool ByteMap::insert(std::string_view key, TokenId id) {
  if (find(key) != kNone) return false;
  entries_.push_back({keys_.size(), static_cast<uint32_t>(key.size()), id});
  keys_.append(key);
  if (entries_.size() * 2 > slots_.size())
    rebuild(slots_.empty() ? 1024 : slots_.size() * 2);
  else if (!place(static_cast<uint32_t>(entries_.size() - 1)))
    rebuild(slots_.size());
  return true;
}

TokenId ByteMap::find(std::string_view key) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_key(key, seed_) & mask;
  for (size_t probe = 0; probe < kMaxSeedProbes && slots_[slot] != 0;
       ++probe, slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (key_of(entry) == key) return entry.id;
  }
  return kNone;
}

}  // namespace octavo::tokenizer

#pragma once
// A flat map from byte strings to ids for untrusted vocabularies: when a file makes
// keys collide, the table is built again with another seed, so that looking up stays short.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

class ByteMap {
 public:
  static constexpr TokenId kNone = -1;

  // Adds a key that must be new; false when it is there already.
  bool insert(std::string_view key, TokenId id);
  TokenId find(std::string_view key) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t begin;
    uint32_t length;
    TokenId id;
  };
  std::string_view key_of(const Entry& entry) const {
    return std::string_view(keys_).substr(entry.begin, entry.length);
  }
  void rebuild(size_t slots);
  bool place(uint32_t index);

  std::string keys_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // index into entries_ plus one; 0 is free
  uint64_t seed_ = 0;
};

}  // namespace octavo::tokenizer

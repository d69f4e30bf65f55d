#pragma once
// Data as large as wanted, none of it stored.

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "data/token_data.h"

namespace octavo::data {

// Tokens computed from their place: as many as wanted, none stored.
class VirtualTokens : public TokenData {
 public:
  explicit VirtualTokens(uint64_t tokens, uint64_t broken_at = UINT64_MAX)
      : tokens_(tokens), broken_at_(broken_at) {}
  static int32_t token(uint64_t place) { return static_cast<int32_t>(place % 2'147'483'647); }
  uint64_t tokens() const override { return tokens_; }
  int64_t vocab_size() const override { return 2'147'483'647; }
  std::string tokenizer_name() const override { return "virtual"; }
  std::string tokenizer_fingerprint() const override { return "virtual"; }
  std::string fingerprint() const override { return "virtual"; }
  void read(uint64_t begin, std::span<int32_t> out) const override {
    ASSERT_LE(begin + out.size(), tokens_);
    if (begin >= broken_at_) fail(ExitCode::kDamaged, "test", "damage at ", begin);
    for (size_t i = 0; i < out.size(); ++i) out[i] = token(begin + i);
  }

 private:
  uint64_t tokens_, broken_at_;
};

}  // namespace octavo::data

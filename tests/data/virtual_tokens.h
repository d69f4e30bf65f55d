#pragma once
// Data as large as wanted, none of it stored.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "data/token_data.h"
#include "data/token_stream.h"

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

// Read through a stream that takes few samples ahead of time.
class FarTokens : public VirtualTokens {
 public:
  using VirtualTokens::VirtualTokens;
  mutable std::atomic<int> told{0}, told_late{0}, read_untold{0};

  bool is_remote() const override { return true; }
  std::unique_ptr<TokenStream> stream(const StreamOptions&) const override {
    return std::make_unique<Stream>(*this);
  }

 private:
  class Stream final : public TokenStream {
   public:
    explicit Stream(const FarTokens& data) : data_(data) {}
    bool expect(uint64_t begin) override {
      if (told_.size() >= 4) return false;
      ++(was_read_.contains(begin) ? data_.told_late : data_.told);
      told_.insert(begin);
      return true;
    }
    void read(uint64_t begin, std::span<int32_t> out) override {
      if (told_.erase(begin) == 0) ++data_.read_untold;
      was_read_.insert(begin);
      data_.read(begin, out);
    }

   private:
    const FarTokens& data_;
    std::set<uint64_t> told_, was_read_;
  };
};

}  // namespace octavo::data

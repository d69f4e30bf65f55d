#pragma once
// A run on tokens that exist nowhere: for steps whose time, memory or numbers are wanted and not
// what they learn.

#include <string>

#include "base/random.h"
#include "data/token_data.h"
#include "train/run.h"

namespace octavo::train {

// A hash of their position.
class RandomTokens final : public data::TokenData {
 public:
  explicit RandomTokens(int64_t vocabulary) : vocabulary_(vocabulary) {}
  uint64_t tokens() const override { return uint64_t{1} << 40; }
  int64_t vocab_size() const override { return vocabulary_; }
  std::string tokenizer_name() const override { return "random"; }
  std::string tokenizer_fingerprint() const override { return "random"; }
  std::string fingerprint() const override { return "random"; }
  void read(uint64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>(mix64(begin + i + 1) % static_cast<uint64_t>(vocabulary_));
  }

 private:
  int64_t vocabulary_;
};

// Engine, model, optimizer, FP8 and a loader, in `run`, which is new. The weights are those of the
// settings; the vocabulary of a preset is plan::vocabulary_of() them.
void start_on_random_tokens(Run& run, const config::Settings& settings,
                            Weights weights = Weights::kOfSettings);

}  // namespace octavo::train

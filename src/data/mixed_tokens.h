#pragma once
// Several data sets as one: their samples are numbered one source behind the other. Which of them
// comes when is a Mixture's (mixture.h).

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/token_data.h"

namespace octavo::data {

class MixedTokens final : public TokenData {
 public:
  struct Source {
    std::string path;  // as it was given
    std::string name;  // short, and different from the others': for metrics
    std::shared_ptr<TokenData> data;
  };
  // Of one tokenizer, all plain or all packed, each with at least one sample of `length`.
  MixedTokens(std::vector<Source> sources, int64_t length);

  const std::vector<Source>& sources() const { return sources_; }
  // Of samples of the length that it was made for.
  uint64_t samples(size_t source) const { return begins_[source + 1] - begins_[source]; }
  uint64_t first_sample(size_t source) const { return begins_[source]; }
  size_t source_of(uint64_t sample) const;
  // Every sample of every source once, spread evenly. Made at the first call.
  std::shared_ptr<const Mixture> all_once() const;
  // One stream out of one for each source, null where samples are read one by one.
  std::unique_ptr<TokenStream> join(std::vector<std::unique_ptr<TokenStream>> streams) const;

  const MixedTokens* mixed() const override { return this; }
  uint64_t tokens() const override;
  int64_t vocab_size() const override { return front().vocab_size(); }
  std::string tokenizer_name() const override { return front().tokenizer_name(); }
  std::string tokenizer_fingerprint() const override { return front().tokenizer_fingerprint(); }
  std::string fingerprint() const override;  // of the sources, in their order
  int64_t sample_length() const override { return front().sample_length(); }
  std::optional<config::ChatTemplate> chat_template() const override;
  // Tokens of one sample, which begins at its number times the length.
  void read(uint64_t begin, std::span<int32_t> out) const override;
  uint64_t token_bytes() const override { return front().token_bytes(); }
  std::vector<DamagedRange> damage() const override;  // shards are named SOURCE/SHARD
  size_t damage_count() const override;
  double check_seconds() const override;

 private:
  const TokenData& front() const { return *sources_.front().data; }
  uint64_t inside(size_t source, uint64_t begin) const {
    return begin - begins_[source] * static_cast<uint64_t>(length_);
  }

  std::vector<Source> sources_;
  int64_t length_;
  std::vector<uint64_t> begins_;  // of each source's first sample, and the end
  mutable std::mutex mutex_;
  mutable std::vector<DamagedRange> damage_;  // in the order in which it was found
  mutable std::vector<size_t> seen_;          // of each source's
  mutable std::once_flag all_once_made_;
  mutable std::shared_ptr<const Mixture> all_once_;
  friend class MixedStream;
};

// Different from each other: the last part of each path, with a number where two are the same.
std::vector<std::string> source_names(const std::vector<std::string>& paths);

}  // namespace octavo::data

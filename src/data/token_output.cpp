#include "data/token_output.h"

#include <algorithm>

#include "data/packer.h"
#include "data/shard_sequence.h"

namespace octavo::data {
namespace {

class PlainOutput : public TokenOutput {
 public:
  PlainOutput(const OutputOptions& options, Journal& journal)
      : shards_(options.folder, options.kind, journal), shard_tokens_(options.shard_tokens) {}

  void write(const EncodedUnit& unit, uint64_t at) override {
    while (at < unit.tokens.size()) {
      const bool train = at < unit.train_tokens;
      const std::string split = train ? "train" : "val";
      if (shards_.is_open() && split != shards_.split()) shards_.close(unit.start, at);
      if (!shards_.is_open()) shards_.open(split);
      const uint64_t split_end = train ? unit.train_tokens : unit.tokens.size();
      const uint64_t end = std::min(split_end, at + shard_tokens_ - shards_.writer().tokens());
      append(unit, at, end);
      at = end;
      if (shards_.writer().tokens() == shard_tokens_) shards_.close(unit.start, at);
    }
  }

  void finish(UnitPosition end) override {
    if (shards_.is_open()) shards_.close(end, 0);
  }

 private:
  void append(const EncodedUnit& unit, uint64_t from, uint64_t to) {
    const std::span<const int32_t> tokens = unit.tokens;
    auto document = std::lower_bound(unit.documents.begin(), unit.documents.end(), from);
    for (; document != unit.documents.end() && *document < to; ++document) {
      shards_.writer().append(tokens.subspan(from, *document - from));
      shards_.writer().begin_document();
      from = *document;
    }
    shards_.writer().append(tokens.subspan(from, to - from));
  }

  ShardSequence shards_;
  uint64_t shard_tokens_;
};

// A shard is a packing of its own: no sample is open when it ends, so that a later call can
// continue behind it without knowing more than the place.
class PackedOutput : public TokenOutput {
 public:
  PackedOutput(const OutputOptions& options, Journal& journal)
      : shards_(options.folder, options.kind, journal),
        options_(options),
        packer_(options.kind.sample_length, options.share_samples) {}

  void write(const EncodedUnit& unit, uint64_t at) override {
    const std::span<const int32_t> tokens = unit.tokens;
    auto document = std::lower_bound(unit.documents.begin(), unit.documents.end(), at);
    for (; document != unit.documents.end(); ++document) {
      const uint64_t begin = *document;
      const uint64_t end =
          document + 1 == unit.documents.end() ? unit.tokens.size() : *(document + 1);
      const std::string split = begin < unit.train_tokens ? "train" : "val";
      if (shards_.is_open() && split != shards_.split()) close(unit.start, begin);
      if (!shards_.is_open()) shards_.open(split);
      if (auto full = packer_.add(tokens.subspan(begin, end - begin))) put(*full);
      const uint64_t packed =
          shards_.writer().tokens() + packer_.open_samples() * options_.kind.sample_length;
      if (packed >= options_.shard_tokens) close(unit.start, end);
    }
  }

  void finish(UnitPosition end) override {
    if (shards_.is_open()) close(end, 0);
  }

 private:
  void put(const PackedSample& sample) {
    size_t from = 0;
    for (const size_t end : sample.ends) {
      shards_.writer().begin_document();
      shards_.writer().append(std::span(sample.tokens).subspan(from, end - from));
      from = end;
    }
    shards_.writer().pad(options_.kind.sample_length - from, options_.padding_id);
  }

  void close(UnitPosition next, uint64_t skip) {
    for (const PackedSample& sample : packer_.take_all()) put(sample);
    shards_.close(next, skip);
  }

  ShardSequence shards_;
  OutputOptions options_;
  Packer packer_;
};

}  // namespace

std::unique_ptr<TokenOutput> make_output(const OutputOptions& options, Journal& journal) {
  if (options.kind.packed()) return std::make_unique<PackedOutput>(options, journal);
  return std::make_unique<PlainOutput>(options, journal);
}

}  // namespace octavo::data

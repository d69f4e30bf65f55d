#pragma once
// Encoded units to shards, split by split. Each finished shard is noted in the journal with the
// place in the input behind it, so that a later call can continue there.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "data/encode.h"
#include "data/journal.h"
#include "data/shard.h"

namespace octavo::data {

class TokenOutput {
 public:
  virtual ~TokenOutput() = default;
  // Writes the unit's tokens from index `at` on.
  virtual void write(const EncodedUnit& unit, uint64_t at) = 0;
  // `end`: the position behind all inputs.
  virtual void finish(UnitPosition end) = 0;
};

struct OutputOptions {
  fs::path folder;
  ShardKind kind;
  uint64_t shard_tokens = 0;
  int32_t padding_id = 0;  // packed: what fills a sample up
  bool share_samples = true;
};

// Plain tokens, or packed samples, as the kind says.
std::unique_ptr<TokenOutput> make_output(const OutputOptions& options, Journal& journal);

}  // namespace octavo::data

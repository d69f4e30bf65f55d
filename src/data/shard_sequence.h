#pragma once
// The shard that is being written, and the numbers of those before it.

#include <map>
#include <optional>
#include <string>

#include "data/journal.h"
#include "data/shard.h"

namespace octavo::data {

std::string shard_name(const std::string& split, uint64_t number);

class ShardSequence {
 public:
  ShardSequence(fs::path folder, ShardKind kind, Journal& journal);
  // Of the shard that is open.
  bool is_open() const { return writer_.has_value(); }
  const std::string& split() const { return split_; }
  ShardWriter& writer() { return *writer_; }

  void open(const std::string& split);
  // What comes behind this shard begins `skip` tokens into the unit at `next`.
  void close(UnitPosition next, uint64_t skip);

 private:
  fs::path folder_;
  ShardKind kind_;
  Journal& journal_;
  std::map<std::string, uint64_t> counts_;
  std::optional<ShardWriter> writer_;
  std::string split_;
};

}  // namespace octavo::data

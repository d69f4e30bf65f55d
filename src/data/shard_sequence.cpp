#include "data/shard_sequence.h"

#include <cstdio>

namespace octavo::data {

ShardSequence::ShardSequence(fs::path folder, ShardKind kind, Journal& journal)
    : folder_(std::move(folder)), kind_(std::move(kind)), journal_(journal) {
  for (const FinishedShard& shard : journal.finished()) ++counts_[shard.split];
}

std::string shard_name(const std::string& split, uint64_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "%s-%05llu.tok", split.c_str(),
                static_cast<unsigned long long>(number));
  return name;
}

void ShardSequence::open(const std::string& split) {
  writer_.emplace(folder_, shard_name(split, counts_[split]), kind_);
  split_ = split;
}

void ShardSequence::close(UnitPosition next, uint64_t skip) {
  const ShardInfo info = writer_->finish();
  writer_.reset();
  journal_.append({.split = split_, .shard = info, .next = next, .skip = skip});
  ++counts_[split_];
}

}  // namespace octavo::data

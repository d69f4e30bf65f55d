#include "train/guards/damage_ledger.h"

#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "train/guards/ledger.h"

namespace octavo::train {
namespace {

std::string rank_info_of(const Json& line, const std::string& source) {
  return octavo::str(json_string(line, "split", source), ' ', json_string(line, "shard", source),
                     ' ', json_int(line, "begin", source), ' ', json_int(line, "end", source));
}

}  // namespace

DamageLedger::DamageLedger(const fs::path& folder, int rank)
    : path_(folder /
            (rank == 0 ? "data_damage.jsonl" : octavo::str("data_damage.rank-", rank, ".jsonl"))) {}

void DamageLedger::update(const DataState& data, int64_t step) {
  add(step, "train", *data.train, seen_train_);
  if (data.val != nullptr) add(step, "val", *data.val, seen_val_);
}

void DamageLedger::add(int64_t step, const char* split, const data::TokenData& data, size_t& seen) {
  if (data.damage_count() == seen) return;
  const auto damage = data.damage();
  for (; seen < damage.size(); ++seen) {
    const data::DamagedRange& range = damage[seen];
    append({{"split", split},
            {"shard", range.shard},
            {"begin", range.begin},
            {"end", range.end},
            {"reason", range.reason},
            {"step", step}});
  }
}

void DamageLedger::append(const Json& line) {
  read_earlier();
  if (known_.insert(rank_info_of(line, path_.string())).second) append_to_ledger(path_, line);
}

void DamageLedger::read_earlier() {
  if (read_) return;
  read_ = true;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    try {
      known_.insert(rank_info_of(parse_json(line, path_.string()), path_.string()));
    } catch (const Error& error) {  // cut by a crash, say
      log_warn(octavo::str("data_damage: a line of the ledger is not readable: ", error.what()));
    }
  }
}

}  // namespace octavo::train

#pragma once
// What an interrupted `data prepare` had finished: one line per shard, appended when the shard is
// durable under its name. A line carries its own hash, so one that was cut short by a crash is
// recognised.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/shard.h"
#include "data/units.h"

namespace octavo::data {

constexpr const char* kJournalName = "prepare.journal";

struct FinishedShard {
  std::string split;
  ShardInfo shard;
  // Where the tokens behind this shard come from: `skip` tokens into the unit that starts at
  // `next`.
  UnitPosition next;
  uint64_t skip = 0;
  Json tally =
      nullptr;  // of what comes before `next` (Tally); null in journals of earlier versions
};

class Journal {
 public:
  // Takes up the journal in `folder` when it is of the same plan and its shards are still there;
  // starts a new one otherwise, saying so.
  Journal(const fs::path& folder, const std::string& plan);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  const std::vector<FinishedShard>& finished() const { return finished_; }
  void append(const FinishedShard& shard);
  // Kept with the shards that are appended from now on.
  void note(Json tally) { tally_ = std::move(tally); }
  // The data set is complete. A kill may come between its last file and this: callers that find it
  // complete remove what is left.
  static void remove(const fs::path& folder);

 private:
  void write_line(const std::string& payload);
  uint64_t load(const std::string& plan);  // bytes of the journal that hold

  fs::path folder_, path_;
  int fd_ = -1;
  Json tally_ = nullptr;
  std::vector<FinishedShard> finished_;
};

}  // namespace octavo::data

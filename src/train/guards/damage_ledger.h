#pragma once
// data_damage.jsonl in a run's folder: what was found damaged in its data and left out, one line
// each. A rank other than the first has a file of its own.

#include <set>
#include <string>

#include "base/file.h"
#include "train/dataset.h"

namespace octavo::train {

class DamageLedger {
 public:
  DamageLedger(const fs::path& folder, int rank);
  // Appends what was found since the last call, and not in an earlier start of the run.
  void update(const DataState& data, int64_t step);

 private:
  void add(int64_t step, const char* split, const data::TokenData& data, size_t& seen);
  void append(const Json& line);
  void read_earlier();

  fs::path path_;
  size_t seen_train_ = 0, seen_val_ = 0;  // of TokenData::damage()
  bool read_ = false;
  std::set<std::string> known_;
};

}  // namespace octavo::train

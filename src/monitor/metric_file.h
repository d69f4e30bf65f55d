#pragma once
// What a trial's metrics.jsonl says of one metric, read as it grows.

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace octavo::monitor {

class MetricFile {
 public:
  MetricFile(fs::path path, std::string metric);
  // Reads what was added since the last call. A file that became shorter (a resumed run drops what
  // it writes again) is read from its beginning.
  void update();
  // Every value in the order of the file. One that was not finite (null in JSON) is infinity: a run
  // that diverged must not be known by what it had before.
  const std::vector<double>& values() const { return values_; }

 private:
  void take(const std::string& line);

  fs::path path_;
  std::string metric_;
  uint64_t read_ = 0, file_ = 0;  // bytes taken; inode
  std::vector<double> values_;
};

}  // namespace octavo::monitor

#pragma once
// The texts that a run's model wrote: samples/step-<n>.txt.

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace octavo::run_report {

struct Sample {
  int64_t step = 0;
  std::string text;
  bool cut = false;  // the file has more
};

// In order; none when there is no such folder.
std::vector<int64_t> sample_steps(const fs::path& run);

// The first, the last and others spread between them, at most `most`, each cut to `max_bytes` at
// the end of a character. One that cannot be read is left out and said in `remarks`.
std::vector<Sample> read_samples(const fs::path& run, size_t most, size_t max_bytes,
                                 std::vector<std::string>& remarks);

}  // namespace octavo::run_report

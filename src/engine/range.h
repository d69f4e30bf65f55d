#pragma once
// A stretch of the program with a name, for profilers that read NVTX (Nsight Systems: a timeline in
// the words of the model). Without a profiler it costs a look at a pointer.

#include <cstdint>

namespace octavo::engine {

// From here to the end of the scope, on this thread. Ranges nest.
class Range {
 public:
  explicit Range(const char* name);
  Range(const char* name, int64_t number);  // "block 3"
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace octavo::engine

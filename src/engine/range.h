#pragma once
// A stretch of the program with a name, for profilers that read NVTX (Nsight Systems: a timeline in
// the words of the model) and for the file of engine/trace.h; and a sign of life, for the watch
// over hangs (base/heartbeat.h). Without NVTX and trace it costs a look at a pointer and some
// stores.

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

 private:
  Range(const char* name, const char* sign, int64_t number);

  uint32_t traced_ = 0;  // its name's number; 0: no trace is recorded
  int64_t begun_ns_ = 0;
};

}  // namespace octavo::engine

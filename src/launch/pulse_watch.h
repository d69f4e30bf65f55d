#pragma once
// Whether a rank's process runs at all: by the pulse on its page, which the watch over hangs in the
// rank renews (train/guards/hang_watch.h). A process that is stopped, or waits in the kernel with
// all of its threads, cannot name itself; its launcher does.

#include <chrono>

#include "base/rank_status.h"

namespace octavo::launch {

class PulseWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // True once: the rank has been silent for too long. Only time counts in which this launcher could
  // look: one that stood still with its ranks blames none of them.
  bool look(Clock::time_point now, const RankPage& page);
  double silent_seconds() const { return std::chrono::duration<double>(silent_).count(); }
  // Until the next look: the rank may promise a pulse at any time.
  static std::chrono::milliseconds interval(const RankPage& page);

 private:
  Clock::time_point last_look_{};
  Clock::duration silent_{0};
  int64_t pulse_ = 0;
  bool said_ = false;
};

}  // namespace octavo::launch

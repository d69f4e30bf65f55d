#pragma once
// Whether a rank hangs, by what was seen of it now and then. Time is handed in, and only as much of
// it counts as could be watched: a process that stood still, or a machine that slept, did not hang.

#include <cstdint>

#include "base/heartbeat.h"

namespace octavo::train {

// What is looked at.
struct Signs {
  uint64_t main = 0, loader = 0, device = 0;  // that have counted on show progress
  heartbeat::Wait wait = heartbeat::Wait::kNothing;
  bool exempt = false;
  bool device_works = false;  // on something that may wait for other ranks
  double cpu_seconds = 0;     // of the main thread
};

enum class Verdict : uint8_t {
  kFine,
  kSlow,   // long, but it may be: said once for each time
  kWaits,  // for other ranks, longer than one that hangs needs to name itself
  kHangs,
};

class HangJudge {
 public:
  struct Options {
    double timeout = 60;  // seconds within which a hang is named
    bool alone = true;    // no other ranks
    bool on_cpu = true;   // the main thread computes, and may do so for long
  };
  explicit HangJudge(const Options& options) : options_(options) {}

  Verdict look(double now, const Signs& signs);
  double quiet() const { return quiet_; }  // seconds without progress that were watched
  // Long enough that the device should be asked too, which costs calls of its driver.
  bool is_quiet() const { return quiet_ >= options_.timeout / 4; }

 private:
  bool may_take_long(const Signs& signs) const;

  const Options options_;
  Signs last_;
  double last_look_ = 0, quiet_ = 0, cpu_before_ = 0;
  bool began_ = false, said_ = false;
};

}  // namespace octavo::train

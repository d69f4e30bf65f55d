#pragma once
// When a checkpoint is due by time, whatever steps take: after checkpoint_minutes, or after what
// Young and Daly found to lose least.

#include <chrono>
#include <cstdint>
#include <optional>

#include "config/settings.h"

namespace octavo::train {

// Seconds between two checkpoints that take `save` seconds each, on machines that fail every
// `between_failures` seconds: sqrt(2 * save * between), but not so often that saves take more than
// a twentieth of the time, and at least once an hour: few would lose more than that gladly.
double young_daly_seconds(double save, double between_failures);

class CheckpointClock {
 public:
  using Clock = std::chrono::steady_clock;
  // `minutes`: of the key checkpoint_minutes; below 0: by young_daly_seconds, 0: never.
  CheckpointClock(double minutes, double between_failures, Clock::time_point start);

  void on_save(Clock::time_point when) { last_ = when; }
  // `save`: seconds of a save as measured so far; 0: none was.
  bool is_due(double save, Clock::time_point now) const;
  double interval(double save) const;  // seconds; 0: never

 private:
  double minutes_, between_failures_;
  Clock::time_point last_;
};

// As the settings ask for it, of a run of `ranks`. None: the only checkpoint is that of the end.
std::optional<CheckpointClock> save_clock_of(const config::Settings& settings, int64_t ranks,
                                             CheckpointClock::Clock::time_point start);

}  // namespace octavo::train

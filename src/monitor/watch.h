#pragma once
// The line that a person watches on a terminal: progress, time left, the loss as a sparkline, FP8
// health, red flags.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/rate_window.h"
#include "monitor/step_record.h"

namespace octavo::monitor {

// Numbers as blocks of eight heights, at most `columns`: of more, each block is a mean. What is not
// finite is a blank.
std::string sparkline(const std::vector<double>& values, size_t columns);

class Watch {
 public:
  Watch(int64_t first_step, int64_t max_steps);
  void add(const StepRecord& record, double seconds_since_start);
  void add(const Flag& flag);
  // At most `columns` wide: what matters least is left out first.
  std::string line(size_t columns) const;

 private:
  std::string fp8_health() const;
  std::string flags() const;

  int64_t first_step_, max_steps_, step_ = 0;
  RateWindow window_;
  double loss_ = 0;
  std::vector<double> losses_;  // each the mean of `stride_` steps, over the whole run
  double sum_ = 0;
  int64_t stride_ = 1, in_sum_ = 0;
  struct Health {
    double underflow = 0, saturation = 0;
    std::string worst_layer;
    int64_t troubled = 0;
  };
  std::optional<Health> health_;
  int64_t fp8_layers_ = 0, fallbacks_ = 0;
  std::vector<Flag> flags_;  // that last
  int64_t over_ = 0;         // that do not
};

size_t terminal_columns(int file);  // 0: it is no terminal

// Draws it on stderr in place, ten times a second at most. Away from a terminal it does nothing.
class WatchDisplay {
 public:
  WatchDisplay(int64_t first_step, int64_t max_steps);
  ~WatchDisplay();
  WatchDisplay(const WatchDisplay&) = delete;
  WatchDisplay& operator=(const WatchDisplay&) = delete;
  void add(const StepRecord& record);
  void add(const Flag& flag);
  void clear();  // so that other text can be printed

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  Watch watch_;
  Clock::time_point start_, drawn_at_;
  bool on_terminal_, drawn_ = false;
};

}  // namespace octavo::monitor

#pragma once
// A progress bar with the time left, from how fast it went lately: redrawn in place on a terminal,
// a plain line now and then elsewhere.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/rate_window.h"

namespace octavo {

class Progress {
 public:
  // `unit` is shown after the rate ("MB", "steps"), and without one there is no rate; total <= 0
  // means unknown.
  Progress(std::string label, double total, std::string unit);
  ~Progress();
  void set(double done, std::string_view note = {});
  void finish();
  // Clears the bar's line so that other text can be printed; the next set() draws it again.
  void clear();
  static bool on_terminal();

 private:
  std::string label_, unit_;
  double total_;
  std::chrono::steady_clock::time_point start_, last_draw_;
  RateWindow window_;
  bool drawn_ = false, finished_ = false;
};

std::string format_duration(double seconds);  // "3.2 s", "4 m 10 s", "2 h 05 m"
std::string format_bytes(double bytes);       // "1.5 GB"
std::string format_count(double count);       // "124.4M"

}  // namespace octavo

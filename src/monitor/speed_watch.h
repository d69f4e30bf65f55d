#pragma once
// What the times of the last steps say: data that comes too late, a rank that holds up the others,
// FP8 that is slower than BF16 was.

#include <cstdint>
#include <vector>

#include "monitor/step_record.h"
#include "monitor/window.h"

namespace octavo::monitor {

// Time lost in the last steps, and whether that is a trouble.
class LostTime {
 public:
  explicit LostTime(double bad_share) : bad_share_(bad_share) {}
  // Of a step: seconds lost, and the seconds that the loss is a share of.
  void add(double lost, double of);
  double share() const;  // over the last ten steps
  // A hiccup is no trouble: the share is bad, two of the last ten steps suffered, and a whole
  // second was lost since it began.
  bool bad() const;
  bool good() const { return lost_.full() && share() < bad_share_ / 2; }

 private:
  double bad_share_, lost_since_ = 0;
  Window lost_{10}, of_{10}, suffered_{10};
};

class SlowRankDetector {
 public:
  struct Verdict {
    bool slow = false, even = false;
    int rank = 0;
    double seconds = 0, others = 0;  // means over the last ten steps; of the others, the median
  };
  Verdict add(const std::vector<double>& rank_seconds);

 private:
  std::vector<Window> seconds_;
  int slowest_ = -1;
  static constexpr double kLost = 0.4;  // of the others' time
  LostTime lost_{kLost};
};

class SlowerDetector {
 public:
  explicit SlowerDetector(double baseline) : baseline_(baseline) {}  // tokens a second; 0: none
  struct Verdict {
    bool slower = false, faster = false;
    double tokens_per_second = 0, baseline = 0;
  };
  Verdict add(const StepRecord& record);

 private:
  double baseline_;
  int64_t seen_ = 0;
  Window speeds_{16};
};

}  // namespace octavo::monitor

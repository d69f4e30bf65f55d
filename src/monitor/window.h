#pragma once
// The last numbers of a row of them, and what is usual among them.

#include <cstddef>
#include <utility>
#include <vector>

namespace octavo::monitor {

class Window {
 public:
  explicit Window(size_t most) : most_(most) {}
  void add(double value);
  size_t size() const { return values_.size(); }
  bool full() const { return values_.size() == most_; }
  const std::vector<double>& values() const { return values_; }  // in no order
  std::vector<double> in_order() const;                          // oldest first
  double mean() const;

  // Neither moves when some numbers are far off.
  struct RobustStats {
    double median = 0;
    double sigma = 0;  // 1.4826 times the median distance from it: a normal distribution's sigma
  };
  RobustStats robust_stats() const;

 private:
  size_t most_, next_ = 0;
  std::vector<double> values_;
};

double median_of(std::vector<double> values);  // the lower of two in the middle; 0 of none

// A trouble that lasts is one flag: it is raised when it begins, and again only after `calm` good
// looks in a row.
class RaiseOnce {
 public:
  explicit RaiseOnce(int calm = 10) : calm_(calm) {}
  // True when the trouble begins. Between bad and good nothing changes.
  bool begins(bool bad, bool good);
  bool is_open() const { return open_; }  // it has begun, and lasts
  // True once after it has ended.
  bool take_end() { return std::exchange(ended_, false); }

 private:
  int calm_, good_looks_ = 0;
  bool open_ = false, ended_ = false;
};

}  // namespace octavo::monitor

#pragma once
// How fast something goes now: over its last part, and not since the start, which may have been
// slow (a first step, a cold cache) or fast.

#include <cstddef>
#include <deque>

namespace octavo {

class RateWindow {
 public:
  // `done` so far, at `seconds`; neither goes back.
  void add(double done, double seconds) {
    newest_ = {done, seconds};
    if (!marks_.empty() && seconds - marks_.back().seconds < kLeastApart) return;
    marks_.push_back(newest_);
    if (marks_.size() > kMostMarks) marks_.pop_front();
  }

  // Per second; 0 while nothing is known.
  double rate() const {
    if (marks_.empty()) return 0;
    const double seconds = newest_.seconds - marks_.front().seconds;
    return seconds > 0 ? (newest_.done - marks_.front().done) / seconds : 0;
  }

 private:
  struct Mark {
    double done = 0, seconds = 0;
  };
  // A minute of fast steps, and the last 128 of slow ones: evaluations and saves are among them.
  static constexpr size_t kMostMarks = 129;
  static constexpr double kLeastApart = 0.5;
  std::deque<Mark> marks_;
  Mark newest_;
};

}  // namespace octavo

#pragma once
// The values of a log by name, as its reader finds them, and what becomes of them.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "foreign_logs/log.h"
#include "foreign_logs/metric_names.h"

namespace octavo::foreign_logs {

inline constexpr int64_t kLastStep = int64_t{1} << 50;

class Metrics {
 public:
  explicit Metrics(Options options) : options_(std::move(options)) {}

  // Keeps values that a comparison may need, and counts the others by name. False: no step of a
  // run.
  bool add(std::string_view name, int64_t step, double value);
  // A value of that name was there and is of no use.
  void saw(std::string_view name);
  // A session that began at `step`: what was said of it and of later ones before does not count.
  void forget_from(int64_t step);

  bool is_loss(std::string_view name) const;  // also of validation
  const Options& options() const { return options_; }
  size_t values() const { return values_; }

  void count_bad_line(int64_t lines = 1) { bad_lines_ += lines; }
  void count_skipped_steps(int64_t steps) { skipped_steps_ += steps; }
  void count_without_step() { ++without_step_; }
  void remark(std::string text) { remarks_.push_back(std::move(text)); }

  // Everything as a log. Fails when there is no training loss.
  Log log(const fs::path& path, const std::string& format) const;

 private:
  struct Point {
    int64_t step;
    double value;
  };
  struct Series {
    bool kept = false;
    std::vector<Point> points;  // in the order of the log
  };
  struct Chosen {
    std::string name;
    const Series* series = nullptr;
    double unit = 1;
  };

  Series& series_of(std::string_view name);
  Chosen choose(Role role, const std::string& asked, const fs::path& path) const;
  [[noreturn]] void refuse_names(const fs::path& path, const std::string& wanted) const;
  void take_steps(Log& log, const Chosen& loss) const;
  void take_speed(Log& log, const fs::path& path) const;
  void collect_remarks(Log& log, Role role, const std::string& used) const;

  Options options_;
  std::map<std::string, Series, std::less<>> series_;
  Series beyond_;      // of names beyond what is kept; has no values
  size_t values_ = 0;  // kept
  int64_t unnamed_ = 0, bad_lines_ = 0, skipped_steps_ = 0, without_step_ = 0, forgotten_ = 0,
          sessions_ = 0;
  std::vector<std::string> remarks_;
};

// Rows that say their step in one of their own fields.
struct Field {
  std::string name;
  double value;
};

class Rows {
 public:
  explicit Rows(Metrics& metrics) : metrics_(metrics) {}
  // The first row with a loss decides which field is the step.
  void take(const std::vector<Field>& row);

 private:
  Metrics& metrics_;
  std::string step_name_;
};

}  // namespace octavo::foreign_logs

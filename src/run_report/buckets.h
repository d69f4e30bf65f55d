#pragma once
// Curves of a long run in bounded memory and a bounded page: records are joined into buckets of
// equal count, and each bucket keeps least, mean and most of every field. A run with few records
// has one in each bucket, so nothing is lost of it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace octavo::run_report {

// Of one field in one bucket.
struct Cell {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0;
  int64_t count = 0, lost = 0;  // finite values; values that were not finite

  void add(double value);
  void join(const Cell& other);
  double mean() const;  // between least and most, also when the sum overflows; NaN of nothing
};

// The steps of a bucket's records.
struct StepSpan {
  int64_t first = 0, last = 0;
};

class Buckets {
 public:
  explicit Buckets(size_t most);
  void begin(int64_t step);              // the next record
  void add(size_t field, double value);  // of the record that was begun last
  void narrow(size_t most);              // joins neighbours until no more are left

  size_t size() const { return spans_.size(); }
  size_t fields() const { return cells_.size(); }
  int64_t width() const { return width_; }  // records of a bucket; the last may have fewer
  int64_t records() const { return records_; }
  const StepSpan& span(size_t bucket) const { return spans_[bucket]; }
  Cell cell(size_t field, size_t bucket) const;  // empty where nothing was added

 private:
  void join_neighbours();

  size_t most_;
  int64_t width_ = 1, records_ = 0;
  std::vector<StepSpan> spans_;
  std::vector<std::vector<Cell>> cells_;  // by field; no longer than it has to be
};

}  // namespace octavo::run_report

#include "run_report/buckets.h"

#include <algorithm>
#include <cmath>

namespace octavo::run_report {

void Cell::add(double value) {
  if (!std::isfinite(value)) {
    ++lost;
    return;
  }
  least = std::min(least, value);
  most = std::max(most, value);
  sum += value;
  ++count;
}

void Cell::join(const Cell& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum += other.sum;
  count += other.count;
  lost += other.lost;
}

double Cell::mean() const {
  if (count == 0) return std::nan("");
  const double mean = sum / static_cast<double>(count);
  return std::isfinite(mean) ? std::clamp(mean, least, most) : least / 2 + most / 2;
}

Buckets::Buckets(size_t most) : most_(std::max<size_t>(most, 1)) {}

void Buckets::begin(int64_t step) {
  if (static_cast<size_t>(records_ / width_) >= most_) join_neighbours();
  const size_t bucket = static_cast<size_t>(records_++ / width_);
  if (bucket == spans_.size()) {
    spans_.push_back({step, step});
  } else {
    StepSpan& span = spans_[bucket];
    span = {std::min(span.first, step), std::max(span.last, step)};
  }
}

void Buckets::add(size_t field, double value) {
  if (spans_.empty()) return;
  if (field >= cells_.size()) cells_.resize(field + 1);
  std::vector<Cell>& cells = cells_[field];
  if (cells.size() < spans_.size()) cells.resize(spans_.size());
  cells.back().add(value);
}

void Buckets::narrow(size_t most) {
  while (spans_.size() > std::max<size_t>(most, 1)) join_neighbours();
}

void Buckets::join_neighbours() {
  width_ *= 2;
  for (size_t i = 0; i < spans_.size(); i += 2) {
    StepSpan joined = spans_[i];
    if (i + 1 < spans_.size())
      joined = {std::min(joined.first, spans_[i + 1].first),
                std::max(joined.last, spans_[i + 1].last)};
    spans_[i / 2] = joined;
  }
  spans_.resize((spans_.size() + 1) / 2);
  for (std::vector<Cell>& cells : cells_) {
    for (size_t i = 0; i < cells.size(); i += 2) {
      Cell joined = cells[i];
      if (i + 1 < cells.size()) joined.join(cells[i + 1]);
      cells[i / 2] = joined;
    }
    cells.resize((cells.size() + 1) / 2);
  }
}

Cell Buckets::cell(size_t field, size_t bucket) const {
  if (field >= cells_.size() || bucket >= cells_[field].size()) return {};
  return cells_[field][bucket];
}

}  // namespace octavo::run_report

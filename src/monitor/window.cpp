#include "monitor/window.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace octavo::monitor {
namespace {

constexpr double kSigmaOfMad = 1.4826;

}  // namespace

void Window::add(double value) {
  if (!full()) {
    values_.push_back(value);
    return;
  }
  values_[next_] = value;
  next_ = (next_ + 1) % most_;
}

std::vector<double> Window::in_order() const {
  std::vector<double> values = values_;
  std::rotate(values.begin(), values.begin() + static_cast<ptrdiff_t>(next_), values.end());
  return values;
}

double Window::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(size());
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Window::RobustStats Window::robust_stats() const {
  const double median = median_of(values_);
  std::vector<double> distances;
  distances.reserve(size());
  for (const double value : values_) distances.push_back(std::abs(value - median));
  return {median, kSigmaOfMad * median_of(std::move(distances))};
}

bool RaiseOnce::begins(bool bad, bool good) {
  if (!open_) {
    open_ = bad;
    good_looks_ = 0;
    if (bad) ended_ = false;
    return bad;
  }
  good_looks_ = good ? good_looks_ + 1 : 0;
  open_ = good_looks_ < calm_;
  ended_ = !open_;
  return false;
}

}  // namespace octavo::monitor

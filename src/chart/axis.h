#pragma once
// The frame of a chart: from values to places on paper, marks, grid and labels.

#include <string>
#include <vector>

#include "chart/drawing.h"

namespace octavo::chart {

// A value's place between `from` and `to` (SVG units; `to` may be smaller, as for y).
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  double from = 0, to = 1;
  std::vector<double> ticks;
  std::vector<std::string> labels;

  bool shows(double value) const;  // finite, and positive on a logarithmic axis
  double place(double value) const;
  double widest_label() const;
};

// The smallest and largest of the values that can be shown.
class Extent {
 public:
  explicit Extent(bool log) : log_(log) {}
  bool add(double value);  // false: it cannot be shown
  bool empty() const { return low_ > high_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool log_;
  double low_ = 1e300, high_ = -1e300;
};

// With a margin of `margin` of the range on both sides, which does not cross zero.
Axis axis_over(const Extent& extent, bool log, double margin, int about_ticks);

// Grid, marks and labels. The plot's corners are the axes' from and to.
void draw_grid(Drawing& drawing, const Axis& y, double left, double right);
void draw_x_labels(Drawing& drawing, const Axis& x, double bottom);
void draw_y_title(Drawing& drawing, const std::string& text, double top, double bottom);

}  // namespace octavo::chart

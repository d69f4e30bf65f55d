#pragma once
// Curves over a common axis, as one SVG element.

#include <string>
#include <vector>

namespace octavo::chart {

struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> low, high;  // a band around the curve: as long as x, or empty
  bool dashed = false;
};

// A point worth a name: "warm-up ends, step 100".
struct Mark {
  double x = 0, y = 0;
  std::string text;
};

struct LineChart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Series> series;
  int width = 760, height = 380;
  std::vector<Mark> marks = {};
  std::vector<double> x_ticks = {};  // where values were measured; empty: round numbers
};

// Own fonts and colours, a legend above the plot, marks at round numbers. A value that is not
// finite, or not positive on a logarithmic axis, breaks its curve and is counted in a note below
// the plot. Curves with more points than pixels keep every column's extremes. Curves differ in
// their dashes as in their colours, and points show their values under the pointer.
std::string svg(const LineChart& chart);

}  // namespace octavo::chart

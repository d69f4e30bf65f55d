#pragma once
// Groups of bars side by side, as one SVG element.

#include <string>
#include <vector>

namespace octavo::chart {

struct BarChart {
  std::string title, y_label;
  std::vector<std::string> groups;
  struct Bars {
    std::string name;
    std::vector<double> values;  // one for each group; not finite: no bar, and "–" in its place
  };
  std::vector<Bars> bars;
  int width = 760, height = 380;
};

// The axis includes zero. Values stand at their bars where there is room.
std::string svg(const BarChart& chart);

}  // namespace octavo::chart

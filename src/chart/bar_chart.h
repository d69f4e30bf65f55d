#pragma once
// Groups of bars side by side, as one SVG element.

#include <optional>
#include <string>
#include <vector>

namespace octavo::chart {

struct BarChart {
  std::string title, y_label;
  std::vector<std::string> groups;
  struct Bars {
    std::string name;
    std::vector<double> values;  // one for each group; not finite: no bar, and "–" in its place
    std::vector<double> low = {}, high = {};  // error bars: as long as values, or empty
  };
  std::vector<Bars> bars;
  int width = 760, height = 380;
  std::optional<double> level = {};  // a line across, such as 1.0: as fast
  std::string level_name = {};
};

// The axis includes zero. Values stand at their bars where there is room.
std::string svg(const BarChart& chart);

}  // namespace octavo::chart

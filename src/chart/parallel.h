#pragma once
// Parallel coordinates: one upright axis for each of several quantities, one line for each thing
// that has them, coloured by the last quantity.

#include <string>
#include <vector>

namespace octavo::chart {

struct ParallelAxis {
  std::string name;
  bool log = false;
  std::vector<std::string> choices = {};  // values are indices of these, spaced evenly
};

struct ParallelLine {
  std::vector<double> values;  // one for each axis; NaN ends the line before that axis
};

struct ParallelChart {
  std::string title;
  std::vector<ParallelAxis> axes;
  std::vector<ParallelLine> lines;
  bool high_is_good = false;  // of the last axis; the best line is drawn last and widest
  int width = 820, height = 400;
};

std::string svg(const ParallelChart& chart);

}  // namespace octavo::chart

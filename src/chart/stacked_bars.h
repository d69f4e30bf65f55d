#pragma once
// Bars that lie, each of parts: what a whole is made of, beside others. Several panels share one
// picture.

#include <string>
#include <vector>

namespace octavo::chart {

struct StackedBars {
  std::string heading;
  std::vector<std::string> parts;  // names, in the order of the values
  struct Row {
    std::string name, end;  // left of the bar, and behind it
    std::vector<double> values;
  };
  std::vector<Row> rows;
};

struct StackedPicture {
  std::string title;
  std::vector<StackedBars> panels;
  std::string note;  // a line at the bottom
  int width = 1020;
};

std::string svg(const StackedPicture& picture);

}  // namespace octavo::chart

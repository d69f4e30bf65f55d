#pragma once
// Bars that lie, each of parts: what a whole is made of, beside others. Several panels share one
// picture, and in all of it one colour means one part.

#include <string>
#include <vector>

namespace octavo::chart {

struct StackedBars {
  std::string heading;
  std::vector<std::string> parts;  // names, in the order of the values
  struct Row {
    std::string name, end;  // left of the bar, and behind it
    std::vector<double> values;
    bool chosen = false;  // the one that was asked for: marked
    bool bad = false;     // its end is written in red, and so is its edge
  };
  std::vector<Row> rows;
  double limit = 0;  // what there is: a line across the bars; 0: none
  std::string limit_name = {};
  std::string unit = {};  // of the values, for the pointer: "GB"
  double per_unit = 1;    // values are divided by it
};

struct StackedPicture {
  std::string title;
  std::vector<StackedBars> panels;
  std::string note;  // a line at the bottom
  int width = 1020;
};

// Bars of a panel have one scale. A part has its name and value on it, where they have room;
// otherwise its letter of the legend stands for the name. The pointer shows both of every part.
std::string svg(const StackedPicture& picture);

}  // namespace octavo::chart

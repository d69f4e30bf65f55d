#include "chart/parallel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/error.h"
#include "chart/axis.h"
#include "chart/ticks.h"

namespace octavo::chart {
namespace {

constexpr double kTop = 74, kBottom = 30, kSide = 72;

// From the best (0) over a pale middle to the worst (1); blue and orange, which every eye tells
// apart.
std::string goodness_colour(double worse) {
  constexpr std::array<double, 3> kBest = {0, 90, 160}, kMiddle = {196, 200, 204},
                                  kWorst = {213, 94, 0};
  const double t = std::clamp(worse, 0.0, 1.0);
  const auto& from = t < 0.5 ? kBest : kMiddle;
  const auto& to = t < 0.5 ? kMiddle : kWorst;
  const double share = t < 0.5 ? 2 * t : 2 * t - 1;
  char text[8];
  int parts[3];
  for (size_t i = 0; i < 3; ++i)
    parts[i] = static_cast<int>(std::lround(from[i] + share * (to[i] - from[i])));
  std::snprintf(text, sizeof text, "#%02x%02x%02x", parts[0] & 255, parts[1] & 255, parts[2] & 255);
  return text;
}

// An axis with the places of its lines' values.
class Column {
 public:
  Column(const ParallelChart& chart, size_t index, double x)
      : axis_(chart.axes[index]), x_(x), low_(chart.height - kBottom) {
    if (!axis_.choices.empty()) return;
    Extent extent(axis_.log);
    for (const ParallelLine& line : chart.lines)
      if (index < line.values.size()) extent.add(line.values[index]);
    scale_ = axis_over(extent, axis_.log, 0.02, 6);
    scale_.from = low_;
    scale_.to = kTop;
  }

  double x() const { return x_; }
  bool shows(double value) const {
    return axis_.choices.empty() ? scale_.shows(value)
                                 : value >= 0 && value < static_cast<double>(axis_.choices.size());
  }
  double place(double value) const {
    if (axis_.choices.empty()) return scale_.place(value);
    return low_ - (value + 0.5) / static_cast<double>(axis_.choices.size()) * (low_ - kTop);
  }

  void draw(Drawing& drawing, double room, bool last) const {
    drawing.line(x_, kTop, x_, low_, kRule, 1.2);
    drawing.words(x_, kTop - 14, shortened(axis_.name, room - 12),
                  {.anchor = "middle", .bold = true});
    const size_t count = axis_.choices.empty() ? scale_.ticks.size() : axis_.choices.size();
    const size_t every = std::max<size_t>(1, count / 16);
    for (size_t i = 0; i < count; i += every) {
      const double y =
          axis_.choices.empty() ? scale_.place(scale_.ticks[i]) : place(static_cast<double>(i));
      const std::string label =
          shortened(axis_.choices.empty() ? scale_.labels[i] : axis_.choices[i], room - 24, 12);
      drawing.line(x_ - 4, y, x_, y, kRule);
      if (last) {
        drawing.words(x_ + 18, y + 4, label, {.colour = kFaint, .size = 12});
        continue;
      }
      // Lines run under the labels: a pale ground keeps them readable.
      const double width = text_width(label, 12);
      drawing.box(x_ - 9 - width, y - 7, width + 4, 14, kPaper, {.opacity = 0.75});
      drawing.words(x_ - 7, y + 4, label, {.anchor = "end", .colour = kFaint, .size = 12});
    }
  }

 private:
  const ParallelAxis& axis_;
  double x_, low_;
  Axis scale_;
};

// Level at every axis, so that lines through one point of it stay apart elsewhere.
std::string path_of(const ParallelLine& line, const std::vector<Column>& columns) {
  std::string path;
  double x = 0, y = 0;
  for (size_t i = 0; i < columns.size() && i < line.values.size(); ++i) {
    if (!columns[i].shows(line.values[i])) break;
    const double next_x = columns[i].x(), next_y = columns[i].place(line.values[i]);
    const double middle = (x + next_x) / 2;
    if (i == 0)
      path = str("M", coordinate(next_x), ",", coordinate(next_y));
    else
      path += str(" C", coordinate(middle), ",", coordinate(y), " ", coordinate(middle), ",",
                  coordinate(next_y), " ", coordinate(next_x), ",", coordinate(next_y));
    x = next_x;
    y = next_y;
  }
  return path;
}

// "learning_rate 0.001, val/loss 2.5"
std::string hint_of(const ParallelChart& chart, const ParallelLine& line) {
  std::string hint;
  for (size_t i = 0; i < std::min(chart.axes.size(), line.values.size()); ++i) {
    const ParallelAxis& axis = chart.axes[i];
    if (!std::isfinite(line.values[i])) continue;
    const auto choice = static_cast<size_t>(std::max(0.0, line.values[i]));
    hint += str(hint.empty() ? "" : ", ", axis.name, " ",
                choice < axis.choices.size() ? axis.choices[choice] : short_number(line.values[i]));
  }
  return hint;
}

// How bad each line is, from 0 to 1 by its last value; 2 where that is missing.
std::vector<double> badness_of(const ParallelChart& chart) {
  Extent extent(false);
  const size_t last = chart.axes.size() - 1;
  const auto value = [&](const ParallelLine& line) {
    return line.values.size() > last ? line.values[last] : std::nan("");
  };
  for (const ParallelLine& line : chart.lines) extent.add(value(line));
  std::vector<double> badness;
  for (const ParallelLine& line : chart.lines) {
    const double range = extent.high() - extent.low();
    const double share = range > 0 ? (value(line) - extent.low()) / range : 0;
    badness.push_back(!std::isfinite(value(line)) ? 2 : chart.high_is_good ? 1 - share : share);
  }
  return badness;
}

}  // namespace

std::string svg(const ParallelChart& chart) {
  OCTAVO_ASSERT(!chart.axes.empty());
  Drawing drawing(chart.width, chart.title);
  drawing.words(16, 26, chart.title, {.size = 16, .bold = true});
  const double gaps = static_cast<double>(std::max<size_t>(1, chart.axes.size() - 1));
  const double room = (chart.width - 2 * kSide) / gaps;
  std::vector<Column> columns;
  for (size_t i = 0; i < chart.axes.size(); ++i)
    columns.emplace_back(chart, i, kSide + room * static_cast<double>(i));
  const std::vector<double> badness = badness_of(chart);
  std::vector<size_t> order(chart.lines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return badness[a] > badness[b]; });
  const double opacity = chart.lines.size() > 60 ? 0.45 : 0.75;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool best = i + 1 == order.size() && badness[order[i]] <= 1;
    const std::string path = path_of(chart.lines[order[i]], columns);
    const bool missing = badness[order[i]] > 1;
    drawing.curve(path, missing ? "#d0d4d8" : goodness_colour(badness[order[i]]), best ? 3.6 : 1.7,
                  best ? 1 : opacity, hint_of(chart, chart.lines[order[i]]));
  }
  for (size_t i = 0; i < columns.size(); ++i)
    columns[i].draw(drawing, i + 1 == columns.size() ? std::max(room, 140.0) : room,
                    i + 1 == columns.size());
  // The colours, beside the axis that they belong to.
  const double low = chart.height - kBottom, steps = 48;
  for (double i = 0; i < steps; ++i) {
    const double share = (i + 0.5) / steps;  // from the bottom
    drawing.box(columns.back().x() + 3, low - (i + 1) / steps * (low - kTop), 9,
                (low - kTop) / steps + 0.4,
                goodness_colour(chart.high_is_good ? 1 - share : share));
  }
  return drawing.finish(chart.height);
}

}  // namespace octavo::chart

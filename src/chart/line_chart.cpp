#include "chart/line_chart.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "chart/axis.h"
#include "chart/ticks.h"

namespace octavo::chart {
namespace {

constexpr size_t kFewPoints = 24;  // so few that each gets a dot; two are a straight line
constexpr size_t kHints = 60;      // of a curve: where the pointer finds values

struct Plot {
  Axis x, y;
  size_t left_out = 0;
};

bool has_band(const Series& series, size_t i) {
  return i < series.low.size() && i < series.high.size();
}

Plot plot_of(const LineChart& chart) {
  Extent xs(chart.log_x), ys(chart.log_y);
  Plot plot;
  for (const Series& series : chart.series)
    for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      Extent own_x(chart.log_x), own_y(chart.log_y);
      if (!own_x.add(series.x[i]) || !own_y.add(series.y[i])) {
        ++plot.left_out;
        continue;
      }
      xs.add(series.x[i]);
      ys.add(series.y[i]);
      if (has_band(series, i)) {
        ys.add(series.low[i]);
        ys.add(series.high[i]);
      }
    }
  plot.x = axis_over(xs, chart.log_x, 0, 7);
  plot.y = axis_over(ys, chart.log_y, 0.05, 6);
  if (!chart.x_ticks.empty()) {
    plot.x.ticks.clear();
    for (const double tick : chart.x_ticks)
      if (plot.x.shows(tick) && tick >= plot.x.low && tick <= plot.x.high)
        plot.x.ticks.push_back(tick);
    plot.x.labels = tick_labels(plot.x.ticks);
  }
  return plot;
}

struct Point {
  double x, y;
};

void append_point(std::string& points, const Point& place) {
  if (!points.empty()) points += ' ';
  points += coordinate(place.x) + "," + coordinate(place.y);
}

// Of many points in one column of pixels: first, lowest, highest, last, in their order.
std::vector<Point> thinned(const std::vector<Point>& points, double width) {
  if (static_cast<double>(points.size()) <= 4 * width) return points;
  std::vector<Point> kept;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin;
    while (end < points.size() && std::floor(points[end].x) == std::floor(points[begin].x)) ++end;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (points[i].y < points[low].y) low = i;
      if (points[i].y > points[high].y) high = i;
    }
    std::vector<size_t> chosen = {begin, std::min(low, high), std::max(low, high), end - 1};
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (size_t i : chosen) kept.push_back(points[i]);
    begin = end;
  }
  return kept;
}

// The points of a curve, cut where a value cannot be shown.
std::vector<std::vector<Point>> pieces_of(const Plot& plot, const Series& series,
                                          const std::vector<double>& values) {
  std::vector<std::vector<Point>> pieces(1);
  for (size_t i = 0; i < std::min(series.x.size(), values.size()); ++i)
    if (plot.x.shows(series.x[i]) && plot.y.shows(values[i]) && std::abs(values[i]) <= 1e200)
      pieces.back().push_back({plot.x.place(series.x[i]), plot.y.place(values[i])});
    else if (!pieces.back().empty())
      pieces.emplace_back();
  if (pieces.back().empty()) pieces.pop_back();
  return pieces;
}

void draw_band(Drawing& drawing, const Plot& plot, const Series& series, std::string_view colour) {
  std::vector<Point> low, high;
  for (size_t i = 0; i < series.x.size() && has_band(series, i); ++i) {
    if (!plot.x.shows(series.x[i]) || !plot.y.shows(series.low[i]) || !plot.y.shows(series.high[i]))
      continue;
    const double x = plot.x.place(series.x[i]);
    low.push_back({x, plot.y.place(series.low[i])});
    high.push_back({x, plot.y.place(series.high[i])});
  }
  if (low.size() < 2) return;
  const double width = std::abs(plot.x.to - plot.x.from);
  low = thinned(low, width);
  high = thinned(high, width);
  std::string points;
  for (const Point& place : low) append_point(points, place);
  for (auto place = high.rbegin(); place != high.rend(); ++place) append_point(points, *place);
  drawing.area(points, colour);
}

// "BF16: step 120, loss 2.345 [2.3, 2.4]"
std::string point_hint(const LineChart& chart, const Series& series, size_t i) {
  const auto named = [](const std::string& name, double value) {
    return str(name, name.empty() ? "" : " ", short_number(value));
  };
  std::string hint =
      str(series.name, series.name.empty() ? "" : ": ", named(chart.x_label, series.x[i]), ", ",
          named(chart.y_label, series.y[i]));
  if (has_band(series, i) && std::isfinite(series.low[i]) && std::isfinite(series.high[i]))
    hint += str(" [", short_number(series.low[i]), ", ", short_number(series.high[i]), "]");
  return hint;
}

void draw_hints(Drawing& drawing, const LineChart& chart, const Plot& plot, const Series& series) {
  const size_t count = std::min(series.x.size(), series.y.size());
  const size_t every = std::max<size_t>(1, (count + kHints - 1) / kHints);
  for (size_t i = 0; i < count; i += every)
    if (plot.x.shows(series.x[i]) && plot.y.shows(series.y[i]) && std::abs(series.y[i]) <= 1e200)
      drawing.hover(plot.x.place(series.x[i]), plot.y.place(series.y[i]), 6,
                    point_hint(chart, series, i));
}

void draw_marks(Drawing& drawing, const LineChart& chart, const Plot& plot) {
  for (const Mark& mark : chart.marks) {
    if (!plot.x.shows(mark.x) || !plot.y.shows(mark.y)) continue;
    const double x = plot.x.place(mark.x), y = plot.y.place(mark.y);
    const double width = text_width(mark.text, 12);
    const bool leftwards = x + 10 + width > plot.x.to;
    // Away from the curve, which comes from the middle of the plot.
    const bool upper = y < (plot.y.from + plot.y.to) / 2;
    const bool below = !upper && plot.y.from - y >= 22;
    drawing.dot(x, y, 4, kInk, mark.text);
    drawing.words(leftwards ? x - 8 : x + 8, below ? y + 18 : y - 8, mark.text,
                  {.anchor = leftwards ? "end" : "start", .size = 12});
  }
}

void draw_curve(Drawing& drawing, const Plot& plot, const Series& series, std::string_view colour,
                std::string_view dashes) {
  const auto pieces = pieces_of(plot, series, series.y);
  size_t shown = 0;
  for (const auto& piece : pieces) shown += piece.size();
  for (const auto& piece : pieces) {
    std::string points;
    for (const Point& place : thinned(piece, std::abs(plot.x.to - plot.x.from)))
      append_point(points, place);
    if (piece.size() > 1) drawing.polyline(points, colour, dashes);
    if ((shown > 2 && shown <= kFewPoints) || piece.size() == 1)
      for (const Point& place : piece) drawing.dot(place.x, place.y, 2.6, colour);
  }
}

std::string note_of(const LineChart& chart, const Plot& plot) {
  if (plot.left_out == 0) return "";
  return str(plot.left_out, plot.left_out == 1 ? " value is" : " values are", " not finite",
             chart.log_x || chart.log_y ? " or not positive" : "", " and not drawn");
}

}  // namespace

std::string svg(const LineChart& chart) {
  Plot plot = plot_of(chart);
  Drawing drawing(chart.width, chart.title);
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.series.size(); ++i)
    entries.push_back(
        {chart.series[i].name, i, chart.series[i].dashed ? kLevelDashes : dashes_of(i)});
  double top = drawing.head(chart.title, entries);

  const double bottom = chart.height - (chart.x_label.empty() ? 32.0 : 52.0);
  const double left = 14 + (chart.y_label.empty() ? 0 : 18) + plot.y.widest_label() + 8;
  plot.x.from = left + 4;
  plot.x.to = chart.width - 24.0;
  plot.y.from = bottom;
  plot.y.to = std::min(top, bottom - 20);
  draw_grid(drawing, plot.y, left, plot.x.to + 4);
  drawing.line(left, bottom, plot.x.to + 4, bottom, kRule);
  draw_x_labels(drawing, plot.x, bottom);
  draw_y_title(drawing, chart.y_label, plot.y.to, bottom);
  if (!chart.x_label.empty())
    drawing.words((left + plot.x.to) / 2, bottom + 41, chart.x_label,
                  {.anchor = "middle", .colour = kFaint});
  for (size_t i = 0; i < chart.series.size(); ++i)
    draw_band(drawing, plot, chart.series[i], colour_of(i));
  for (size_t i = 0; i < chart.series.size(); ++i)
    draw_curve(drawing, plot, chart.series[i], colour_of(i), entries[i].dashes);
  draw_marks(drawing, chart, plot);
  for (const Series& series : chart.series) draw_hints(drawing, chart, plot, series);
  drawing.words(chart.width - 20.0, bottom + 41, note_of(chart, plot),
                {.anchor = "end", .colour = kFaint, .size = 11});
  return drawing.finish(chart.height);
}

}  // namespace octavo::chart

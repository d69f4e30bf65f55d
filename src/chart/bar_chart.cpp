#include "chart/bar_chart.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "chart/axis.h"
#include "chart/ticks.h"

namespace octavo::chart {
namespace {

constexpr double kSmall = 11, kLongestGroup = 190, kTurn = -35;

Axis values_axis(const BarChart& chart) {
  Extent extent(false);
  extent.add(0);
  if (chart.level) extent.add(*chart.level);
  for (const BarChart::Bars& bars : chart.bars)
    for (const auto* values : {&bars.values, &bars.low, &bars.high})
      for (double value : *values) extent.add(value);
  return axis_over(extent, false, 0.09, 6);
}

struct Slots {
  double left, width, bar;  // of the first group, of a group, of a bar in it
  bool turned;              // labels of groups are too long to lie flat
  bool values;              // every value has room at its bar
};

Slots slots_of(const BarChart& chart, double left, double right) {
  const double groups = std::max<double>(1, static_cast<double>(chart.groups.size()));
  const double bars = std::max<double>(1, static_cast<double>(chart.bars.size()));
  const double width = (right - left) / groups;
  Slots slots{left, width, std::min(54.0, 0.8 * width / bars), false, true};
  for (const std::string& group : chart.groups)
    slots.turned = slots.turned || text_width(group, kFontSize) > width - 6;
  for (const BarChart::Bars& each : chart.bars)
    for (double value : each.values)
      slots.values = slots.values && text_width(short_number(value), kSmall) <= slots.bar + 4;
  return slots;
}

bool has_error(const BarChart::Bars& bars, size_t group) {
  return group < bars.low.size() && group < bars.high.size() && std::isfinite(bars.low[group]) &&
         std::isfinite(bars.high[group]);
}

// "up, forward: 1.31 [1.28, 1.35]"
std::string bar_hint(const BarChart& chart, size_t bar, size_t group, const std::string& value) {
  const BarChart::Bars& bars = chart.bars[bar];
  std::string hint =
      str(chart.groups[group], bars.name.empty() ? "" : ", ", bars.name, ": ", value);
  if (has_error(bars, group))
    hint += str(" [", short_number(bars.low[group]), ", ", short_number(bars.high[group]), "]");
  return hint;
}

// Returns the place of its upper end, 0 when there is none.
double draw_error(Drawing& drawing, const BarChart::Bars& bars, const Axis& y, size_t group,
                  double x) {
  if (!has_error(bars, group)) return 0;
  const double low = y.place(bars.low[group]), high = y.place(bars.high[group]);
  drawing.line(x, low, x, high, kInk, 1.2);
  for (const double end : {low, high}) drawing.line(x - 4, end, x + 4, end, kInk, 1.2);
  return high;
}

void draw_group(Drawing& drawing, const BarChart& chart, const Axis& y, const Slots& slots,
                size_t group) {
  const double middle = slots.left + (static_cast<double>(group) + 0.5) * slots.width;
  const double first = middle - slots.bar * static_cast<double>(chart.bars.size()) / 2;
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const double x = first + static_cast<double>(i) * slots.bar;
    const double value = group < chart.bars[i].values.size() ? chart.bars[i].values[group] : NAN;
    const bool drawable = std::isfinite(value) && std::abs(value) <= 1e200;
    const double zero = y.place(0), end = drawable ? y.place(value) : zero;
    const std::string label = drawable ? short_number(value) : "–";
    drawing.box(x + 0.05 * slots.bar, std::min(zero, end), 0.9 * slots.bar, std::abs(end - zero),
                colour_of(i), {.edge = kFaint, .hint = bar_hint(chart, i, group, label)});
    const double top =
        drawable ? draw_error(drawing, chart.bars[i], y, group, x + slots.bar / 2) : 0;
    if (!drawable || slots.values)
      drawing.words(x + slots.bar / 2,
                    value < 0 ? end + 13 : std::min(end, top > 0 ? top : end) - 5, label,
                    {.anchor = "middle", .colour = kFaint, .size = kSmall});
  }
}

}  // namespace

std::string svg(const BarChart& chart) {
  Axis y = values_axis(chart);
  Drawing drawing(chart.width, chart.title);
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < chart.bars.size(); ++i)
    entries.push_back({chart.bars[i].name, i, "", true});
  double top = drawing.head(chart.title, entries);

  double left = 14 + (chart.y_label.empty() ? 0 : 18) + y.widest_label() + 8;
  const double right = chart.width - 20.0;
  Slots slots = slots_of(chart, left, right);
  double below = 30;
  if (slots.turned) {
    double longest = 0;
    for (const std::string& group : chart.groups)
      longest = std::max(longest, std::min(kLongestGroup, text_width(group, kFontSize)));
    below = 26 + 0.57 * longest;  // sine and cosine of the turn
    left = std::max(left, 0.82 * longest - slots.width / 2 + 4);
    slots = slots_of(chart, left, right);
  }
  y.from = chart.height - below;
  y.to = std::min(top, y.from - 20);
  draw_grid(drawing, y, left, right);
  draw_y_title(drawing, chart.y_label, y.to, y.from);
  for (size_t group = 0; group < chart.groups.size(); ++group) {
    draw_group(drawing, chart, y, slots, group);
    const double middle = slots.left + (static_cast<double>(group) + 0.5) * slots.width;
    const std::string label =
        shortened(chart.groups[group], slots.turned ? kLongestGroup : slots.width);
    drawing.words(middle + (slots.turned ? 4 : 0), y.from + 18, label,
                  {.anchor = slots.turned ? "end" : "middle", .turn = slots.turned ? kTurn : 0});
  }
  drawing.line(left, y.place(0), right, y.place(0), kRule);
  if (chart.level) {
    const double place = y.place(*chart.level);
    drawing.polyline(str(coordinate(left), ",", coordinate(place), " ", coordinate(right), ",",
                         coordinate(place)),
                     kInk, kLevelDashes);
    drawing.words(right, place - 5, chart.level_name, {.anchor = "end", .size = kSmall});
  }
  return drawing.finish(chart.height);
}

}  // namespace octavo::chart

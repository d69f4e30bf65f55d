#include "chart/stacked_bars.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "chart/drawing.h"

namespace octavo::chart {
namespace {

constexpr double kBar = 26, kGap = 12, kLegend = 150, kEndText = 130;
// Parts of one kind in shades of one colour: ten flat colours could not be told apart.
constexpr std::array<std::string_view, 10> kShades = {"#0a4f82", "#2b83ba", "#7fb8dc", "#c6dfef",
                                                      "#c24f00", "#ed8a3f", "#f8c08f", "#00795a",
                                                      "#7ecbb3", "#b0b5ba"};

double sum_of(const StackedBars::Row& row) {
  double sum = 0;
  for (double value : row.values) sum += std::isfinite(value) ? std::max(0.0, value) : 0;
  return sum;
}

double draw_panel(Drawing& drawing, const StackedBars& panel, double left, double right, double y) {
  double most = 0;
  for (const StackedBars::Row& row : panel.rows) most = std::max(most, sum_of(row));
  drawing.words(left, y, panel.heading, {.bold = true});
  const double top = y + 12, full = right - kLegend - kEndText - left;
  y = top;
  for (const StackedBars::Row& row : panel.rows) {
    drawing.words(left - 8, y + kBar * 0.68, shortened(row.name, left - 16), {.anchor = "end"});
    double x = left;
    for (size_t i = 0; i < row.values.size(); ++i) {
      const double width = most > 0 && row.values[i] > 0 ? full * row.values[i] / most : 0;
      if (!std::isfinite(width) || width < 0.05) continue;
      drawing.box(x, y, width, kBar, kShades[i % kShades.size()]);
      x += width;
    }
    drawing.words(x + 7, y + kBar * 0.68, row.end, {.colour = kFaint});
    y += kBar + kGap;
  }
  double legend = top + 11;
  for (size_t i = 0; i < panel.parts.size(); ++i) {
    const bool shown = std::any_of(
        panel.rows.begin(), panel.rows.end(),
        [&](const StackedBars::Row& row) { return i < row.values.size() && row.values[i] > 0; });
    if (!shown) continue;
    drawing.box(right - kLegend, legend - 10, 11, 11, kShades[i % kShades.size()]);
    drawing.words(right - kLegend + 18, legend, shortened(panel.parts[i], kLegend - 20));
    legend += 18;
  }
  return std::max(y, legend) + 26;
}

}  // namespace

std::string svg(const StackedPicture& picture) {
  Drawing drawing(picture.width, picture.title);
  double left = 60;
  for (const StackedBars& panel : picture.panels)
    for (const StackedBars::Row& row : panel.rows)
      left = std::max(left, std::min(200.0, 24 + text_width(row.name, kFontSize)));
  drawing.words(16, 28, shortened(picture.title, picture.width - 32, 15),
                {.size = 15, .bold = true});
  double y = 62;
  for (const StackedBars& panel : picture.panels)
    y = draw_panel(drawing, panel, left, picture.width - 16.0, y);
  if (picture.note.empty()) return drawing.finish(y - 10);
  drawing.words(16, y, picture.note, {.colour = kFaint, .size = 12});
  return drawing.finish(y + 18);
}

}  // namespace octavo::chart

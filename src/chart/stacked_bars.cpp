#include "chart/stacked_bars.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "chart/drawing.h"
#include "chart/ticks.h"

namespace octavo::chart {
namespace {

constexpr double kBar = 26, kGap = 12, kLegend = 150, kEndText = 150, kLabelSize = 11;
constexpr double kBetween = 1.5;  // of paper between two parts
// Parts of one kind in shades of one colour: twenty flat colours could not be told apart. Edges,
// paper between them, and names or letters on them tell them apart without any.
constexpr std::array<std::string_view, 20> kShades = {
    "#0a4f82", "#2b83ba", "#7fb8dc", "#c6dfef", "#c24f00", "#ed8a3f", "#f8c08f",
    "#00795a", "#7ecbb3", "#b0b5ba", "#5b3a8c", "#8e6bbf", "#bfa6dd", "#e2d6f0",
    "#8a6d00", "#c9a227", "#ecd480", "#8f2d56", "#cf6d96", "#efb9cf"};
// On parts; no colours that a dark screen changes.
constexpr const char* kDarkText = "#111111";
constexpr const char* kLightText = "#fefefe";

double sum_of(const StackedBars::Row& row) {
  double sum = 0;
  for (double value : row.values) sum += std::isfinite(value) ? std::max(0.0, value) : 0;
  return sum;
}

// The same name has the same colour in every panel, and no other name has it.
class PartColours {
 public:
  std::string_view of(const std::string& part) {
    const auto known = std::ranges::find(names_, part);
    const auto index = static_cast<size_t>(known - names_.begin());
    if (known == names_.end()) names_.push_back(part);
    return kShades[index % kShades.size()];
  }

 private:
  std::vector<std::string> names_;
};

const char* text_on(std::string_view shade) {
  return contrast(shade, kDarkText) > contrast(shade, kLightText) ? kDarkText : kLightText;
}

// A part's letter in the legend and on the bars, where its name has no room.
std::string key_of(size_t i) {
  return i < 26 ? std::string(1, static_cast<char>('A' + i)) : "";
}

// What stands on a part: its name and value, or its letter for the name, or the letter alone.
std::string label_of(size_t i, const std::string& name, const std::string& value, double width) {
  for (const std::string& label : {str(name, " ", value), str(key_of(i), " ", value), key_of(i)})
    if (text_width(label, kLabelSize) <= width - 4) return label;
  return "";
}

struct Scale {
  double left, full, most;  // of the bars on paper; the value at their right end
  double width(double value) const {
    const double wide = most > 0 && value > 0 ? full * value / most : 0;
    return std::isfinite(wide) ? wide : 0;
  }
};

std::string part_name(const StackedBars& panel, size_t i) {
  return i < panel.parts.size() ? panel.parts[i] : "";
}

// Returns where the bar ends.
double draw_row(Drawing& drawing, const StackedBars& panel, const StackedBars::Row& row,
                const Scale& scale, double y, PartColours& colours) {
  double x = scale.left;
  for (size_t i = 0; i < row.values.size(); ++i) {
    const double width = scale.width(row.values[i]);
    if (width < 0.05) continue;
    const std::string name = part_name(panel, i);
    const std::string value = short_number(row.values[i] / panel.per_unit);
    const std::string_view shade = colours.of(name);
    drawing.box(x, y, width > 2 * kBetween ? width - kBetween : width, kBar, shade,
                {.edge = row.bad ? kBad : kFaint,
                 .hint = str(row.name, ", ", name, ": ", value, panel.unit.empty() ? "" : " ",
                             panel.unit)});
    if (const std::string label = label_of(i, name, value, width - kBetween); !label.empty())
      drawing.words(x + (width - kBetween) / 2, y + kBar * 0.66, label,
                    {.anchor = "middle", .colour = text_on(shade), .size = kLabelSize});
    x += width;
  }
  return x;
}

void draw_limit(Drawing& drawing, const StackedBars& panel, const Scale& scale, double top,
                double bottom) {
  if (panel.limit <= 0) return;
  const double x = scale.left + scale.width(panel.limit);
  drawing.polyline(
      str(coordinate(x), ",", coordinate(top - 4), " ", coordinate(x), ",", coordinate(bottom)),
      kInk, kLevelDashes);
  const bool rightwards = x - text_width(panel.limit_name, kLabelSize) < 16;
  drawing.words(x, bottom + 12, panel.limit_name,
                {.anchor = rightwards ? "start" : "end", .size = kLabelSize});
}

// For what stands behind the bars; red is bold, and wider.
double end_room(const StackedBars& panel) {
  double room = kEndText;
  for (const StackedBars::Row& row : panel.rows)
    room = std::max(room, (row.bad ? 1.12 : 1) * text_width(row.end, kFontSize) + 14);
  return room;
}

double draw_panel(Drawing& drawing, const StackedBars& panel, double left, double right, double y,
                  PartColours& colours) {
  Scale scale{left, right - kLegend - end_room(panel) - left, panel.limit};
  for (const StackedBars::Row& row : panel.rows) scale.most = std::max(scale.most, sum_of(row));
  drawing.words(left, y, panel.heading, {.bold = true});
  const double top = y + 12;
  y = top;
  for (const StackedBars::Row& row : panel.rows) {
    const std::string name = (row.chosen ? "▶ " : "") + row.name;
    drawing.words(left - 8, y + kBar * 0.68, shortened(name, left - 16),
                  {.anchor = "end", .bold = row.chosen});
    const double end = draw_row(drawing, panel, row, scale, y, colours);
    drawing.words(end + 7, y + kBar * 0.68, row.end,
                  {.colour = row.bad ? kBad : kFaint, .bold = row.bad});
    y += kBar + kGap;
  }
  draw_limit(drawing, panel, scale, top, y - kGap + 4);
  double legend = top + 11;
  for (size_t i = 0; i < panel.parts.size(); ++i) {
    const bool shown = std::any_of(
        panel.rows.begin(), panel.rows.end(),
        [&](const StackedBars::Row& row) { return i < row.values.size() && row.values[i] > 0; });
    if (!shown) continue;
    drawing.box(right - kLegend, legend - 10, 11, 11, colours.of(panel.parts[i]), {.edge = kFaint});
    drawing.words(right - kLegend + 18, legend,
                  shortened(str(key_of(i), " ", panel.parts[i]), kLegend - 20));
    legend += 18;
  }
  return std::max(y + (panel.limit > 0 ? 14 : 0), legend) + 26;
}

}  // namespace

std::string svg(const StackedPicture& picture) {
  Drawing drawing(picture.width, picture.title);
  double left = 60;
  for (const StackedBars& panel : picture.panels)
    for (const StackedBars::Row& row : panel.rows)
      left = std::max(
          left, std::min(200.0, 24 + text_width((row.chosen ? "▶ " : "") + row.name, kFontSize)));
  drawing.words(16, 28, shortened(picture.title, picture.width - 32, 15),
                {.size = 15, .bold = true});
  double y = 62;
  PartColours colours;
  for (const StackedBars& panel : picture.panels)
    y = draw_panel(drawing, panel, left, picture.width - 16.0, y, colours);
  if (picture.note.empty()) return drawing.finish(y - 10);
  drawing.words(16, y, picture.note, {.colour = kFaint, .size = 12});
  return drawing.finish(y + 18);
}

}  // namespace octavo::chart

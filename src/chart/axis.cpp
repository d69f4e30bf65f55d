#include "chart/axis.h"

#include <algorithm>
#include <cmath>

#include "chart/ticks.h"

namespace octavo::chart {

bool Axis::shows(double value) const {
  return std::isfinite(value) && (!log || value > 0);
}

double Axis::place(double value) const {
  const double share = log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                           : (value - low) / (high - low);
  return from + share * (to - from);
}

double Axis::widest_label() const {
  double widest = 0;
  for (const std::string& label : labels) widest = std::max(widest, text_width(label, kFontSize));
  return widest;
}

bool Extent::add(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e200 || (log_ && value <= 0)) return false;
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
  return true;
}

Axis axis_over(const Extent& extent, bool log, double margin, int about_ticks) {
  Axis axis;
  axis.log = log;
  axis.low = extent.empty() ? (log ? 1 : 0) : extent.low();
  axis.high = extent.empty() ? (log ? 10 : 1) : extent.high();
  if (log) {
    const double factor =
        axis.low == axis.high ? 1.5 : std::pow(axis.high / axis.low, std::min(margin, 0.5));
    axis.low /= factor;
    axis.high *= factor;
    axis.ticks = log_ticks(axis.low, axis.high, about_ticks);
  } else {
    double room = (axis.high - axis.low) * margin;
    // Values that are all equal still need a range that doubles can tell apart.
    if (axis.high - axis.low <= 1e-12 * std::abs(axis.high)) {
      room = 0.1 * std::abs(axis.high);
      if (axis.high == 0) axis.high = 1;
    }
    const double low = axis.low - room, high = axis.high + room;
    axis.low = axis.low >= 0 && low < 0 ? 0 : low;
    axis.high = axis.high <= 0 && high > 0 ? 0 : high;
    axis.ticks = round_ticks(axis.low, axis.high, about_ticks);
  }
  axis.labels = tick_labels(axis.ticks);
  return axis;
}

void draw_grid(Drawing& drawing, const Axis& y, double left, double right) {
  for (size_t i = 0; i < y.ticks.size(); ++i) {
    const double place = y.place(y.ticks[i]);
    const bool zero = y.ticks[i] == 0 && y.low < 0;
    drawing.line(left, place, right, place, zero ? kRule : kGrid);
    drawing.words(left - 8, place + 4.5, y.labels[i], {.anchor = "end", .colour = kFaint});
  }
}

void draw_x_labels(Drawing& drawing, const Axis& x, double bottom) {
  double free_from = -1e9;
  for (size_t i = 0; i < x.ticks.size(); ++i) {
    const double place = x.place(x.ticks[i]), half = text_width(x.labels[i], kFontSize) / 2;
    drawing.line(place, bottom, place, bottom + 5, kRule);
    if (place - half < free_from) continue;  // a mark without words rather than words on words
    drawing.words(place, bottom + 20, x.labels[i], {.anchor = "middle", .colour = kFaint});
    free_from = place + half + 8;
  }
}

void draw_y_title(Drawing& drawing, const std::string& text, double top, double bottom) {
  if (text.empty()) return;
  drawing.words(18, (top + bottom) / 2, shortened(text, bottom - top + 40),
                {.anchor = "middle", .colour = kFaint, .turn = -90});
}

}  // namespace octavo::chart

// Two stacked bars for each precision: the memory of a GPU and the time of a step, by part.

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "plan/accuracy.h"
#include "plan/report.h"

namespace octavo::plan {
namespace {

constexpr double kLeft = 120, kWidth = 560, kBar = 26, kGap = 12, kEdge = 1020;
constexpr const char* kColours[] = {"#1764ab", "#4a98c9", "#94c4df", "#d0e1f2", "#e6550d",
                                    "#fd8d3c", "#fdbe85", "#31a354", "#a1d99b", "#bdbdbd"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Names reach the picture from a file: nothing of them may be markup.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string words(double x, double y, const char* anchor, const std::string& text) {
  return str("<text x=\"", number(x), "\" y=\"", number(y), "\" text-anchor=\"", anchor, "\">",
             escaped(text), "</text>\n");
}

struct Row {
  std::string name, end;
  std::vector<Part> parts;
};

// A heading, the bars, and beside them which colour is what.
std::string chart(const std::string& heading, const std::vector<Row>& rows, double& y) {
  double most = 0;
  for (const Row& row : rows) {
    double sum = 0;
    for (const Part& part : row.parts) sum += part.value;
    most = std::max(most, sum);
  }
  std::string out = words(kLeft, y, "start", heading);
  const double top = y + 10;
  y = top;
  for (const Row& row : rows) {
    out += words(kLeft - 8, y + kBar * 0.68, "end", row.name);
    double x = kLeft;
    for (size_t i = 0; i < row.parts.size(); ++i) {
      const double width = most > 0 ? kWidth * row.parts[i].value / most : 0;
      if (width < 0.05) continue;
      out += str("<rect x=\"", number(x), "\" y=\"", number(y), "\" width=\"", number(width),
                 "\" height=\"", number(kBar), "\" fill=\"", kColours[i], "\"/>\n");
      x += width;
    }
    out += words(x + 6, y + kBar * 0.68, "start", row.end);
    y += kBar + kGap;
  }
  double legend = top + 10;
  const double column = kEdge - 140;
  for (size_t i = 0; i < rows.front().parts.size(); ++i) {
    const bool shown = std::any_of(rows.begin(), rows.end(),
                                   [&](const Row& row) { return row.parts[i].value > 0; });
    if (!shown) continue;
    out += str("<rect x=\"", number(column), "\" y=\"", number(legend - 9),
               "\" width=\"10\" height=\"10\" fill=\"", kColours[i], "\"/>\n");
    out += words(column + 16, legend, "start", rows.front().parts[i].name);
    legend += 17;
  }
  y = std::max(y, legend) + 24;
  return out;
}

}  // namespace

std::string picture_of(const Forecast& f) {
  double y = 58;
  const auto memory_row = [](const char* name, const Memory& m) {
    return Row{name, number(m.total / 1e9) + " GB", parts_of(m)};
  };
  std::string body = chart(str("memory of one GPU (", number(f.gpu->memory_gb), " GB)"),
                           {memory_row("BF16", f.bf16_memory), memory_row("FP8", f.fp8_memory)}, y);
  std::vector<Row> rows;
  for (const RecipeForecast& r : f.recipes) {
    if (!r.refusal.empty()) continue;
    char gain[32];
    std::snprintf(gain, sizeof gain, " ms, %.2fx", r.gain);
    rows.push_back(
        {std::string(name_of(r.recipe)), number(1e3 * r.time.total) + gain, parts_of(r.time)});
  }
  body += chart("time of one step", rows, y);
  char note[160];
  std::snprintf(note, sizeof note,
                "A forecast: time within %.0f%% for half and %.0f%% for nine tenths of held-out "
                "measurements, memory within %.0f%%.",
                100 * kMedianError, 100 * kNinetyError, 100 * kMemoryError);
  body += words(kLeft, y, "start", note);
  const std::string title = str(f.shape.name, " on ", f.gpus, " x ", f.gpu->title);
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(kEdge), " ",
             number(y + 16), "\" font-family=\"sans-serif\" font-size=\"13\">\n<title>",
             escaped("octavo plan: " + title), "</title>\n<rect width=\"", number(kEdge),
             "\" height=\"", number(y + 16), "\" fill=\"white\"/>\n",
             words(kLeft, 26, "start", title), body, "</svg>\n");
}

}  // namespace octavo::plan

#include "chart/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/printed.h"
#include "chart/escape.h"

namespace octavo::chart {
namespace {

// Two of theirs are darker here: every colour is 3:1 at least on white.
constexpr std::array<std::string_view, 8> kPalette = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#bb7f00", "#3b96cc", "#6b4c9a", "#7f7f7f"};
constexpr std::array<std::string_view, 8> kDashes = {"",    "10 3", "2 3",          "10 3 2 3",
                                                     "5 2", "1 4",  "12 3 2 3 2 3", "16 4"};
// The same colours on dark paper: lighter, so that they stay above 3:1.
constexpr std::pair<std::string_view, std::string_view> kOnDark[] = {
    {kInk, "#e6edf3"},      {kFaint, "#9da7b3"},    {kGrid, "#30363d"},     {kRule, "#6e7681"},
    {kBad, "#ff7b72"},      {"#0072b2", "#4ba3dd"}, {"#d55e00", "#ff8c42"}, {"#009e73", "#2fc79a"},
    {"#cc79a7", "#e39cc4"}, {"#bb7f00", "#f2b533"}, {"#3b96cc", "#7cc7f2"}, {"#6b4c9a", "#a98bd6"},
    {"#7f7f7f", "#a3a3a3"}};
constexpr double kLegendRow = 20, kLegendMark = 22;

// Of screens alone: paper is white, whatever the screen was set to.
std::string dark_style() {
  std::string rules = str("rect[fill=\"", kPaper, "\"]{fill:#0d1117}");
  for (const auto& [light, dark] : kOnDark)
    rules +=
        str("[fill=\"", light, "\"]{fill:", dark, "}[stroke=\"", light, "\"]{stroke:", dark, "}");
  return str("<style>@media screen and (prefers-color-scheme:dark){", rules, "}</style>\n");
}

// What ends an element: a hint makes it one with a child.
std::string element_end(std::string_view name, std::string_view hint) {
  if (hint.empty()) return "/>\n";
  return str("><title>", escaped(hint), "</title></", name, ">\n");
}

}  // namespace

std::string_view colour_of(size_t index) {
  return kPalette[index % kPalette.size()];
}

double contrast(std::string_view one, std::string_view other) {
  const auto luminance = [](std::string_view colour) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    const auto channel = [&](size_t at) {
      const double share = (16 * digit(colour[at]) + digit(colour[at + 1])) / 255.0;
      return share <= 0.03928 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
  };
  const auto [dark, light] = std::minmax(luminance(one), luminance(other));
  return (light + 0.05) / (dark + 0.05);
}

size_t colours() {
  return kPalette.size();
}

std::string_view dashes_of(size_t index) {
  return kDashes[index % kDashes.size()];
}

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::clamp(value, -1e6, 1e6));
  std::string_view view = text;
  if (view.ends_with(".0")) view.remove_suffix(2);
  return std::string(view == "-0" ? "0" : view);
}

double text_width(std::string_view text, double size) {
  return 0.56 * size * static_cast<double>(columns_of(text));
}

std::string shortened(std::string_view text, double width, double size) {
  if (text_width(text, size) <= width) return std::string(text);
  std::string out;
  while (!text.empty() && text_width(out, size) + 1.2 * size < width) {
    const size_t length = std::max<size_t>(1, character_at(text));
    out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return out + "…";
}

Drawing::Drawing(double width, std::string title) : width_(width), title_(std::move(title)) {}

void Drawing::words(double x, double y, std::string_view text, const Words& look) {
  body_ += str("<text x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" text-anchor=\"",
               look.anchor, "\" fill=\"", look.colour, "\" font-size=\"", look.size, "\"");
  if (look.bold) body_ += " font-weight=\"bold\"";
  if (look.turn != 0)
    body_ += str(" transform=\"rotate(", look.turn, " ", coordinate(x), " ", coordinate(y), ")\"");
  body_ += str(">", escaped(text), "</text>\n");
}

void Drawing::line(double x1, double y1, double x2, double y2, std::string_view colour,
                   double width) {
  body_ += str("<line x1=\"", coordinate(x1), "\" y1=\"", coordinate(y1), "\" x2=\"",
               coordinate(x2), "\" y2=\"", coordinate(y2), "\" stroke=\"", colour,
               "\" stroke-width=\"", width, "\"/>\n");
}

void Drawing::box(double x, double y, double width, double height, std::string_view colour,
                  const BoxLook& look) {
  body_ += str("<rect x=\"", coordinate(x), "\" y=\"", coordinate(y), "\" width=\"",
               coordinate(width), "\" height=\"", coordinate(height), "\" fill=\"", colour, "\"");
  if (look.opacity < 1) body_ += str(" fill-opacity=\"", look.opacity, "\"");
  if (!look.edge.empty()) body_ += str(" stroke=\"", look.edge, "\" stroke-width=\"0.7\"");
  body_ += element_end("rect", look.hint);
}

void Drawing::dot(double x, double y, double radius, std::string_view colour,
                  std::string_view hint) {
  body_ += str("<circle cx=\"", coordinate(x), "\" cy=\"", coordinate(y), "\" r=\"", radius,
               "\" fill=\"", colour, "\"", element_end("circle", hint));
}

void Drawing::hover(double x, double y, double radius, std::string_view hint) {
  body_ += str("<circle cx=\"", coordinate(x), "\" cy=\"", coordinate(y), "\" r=\"", radius,
               "\" fill=\"none\" pointer-events=\"all\"", element_end("circle", hint));
}

void Drawing::polyline(std::string_view points, std::string_view colour, std::string_view dashes) {
  body_ += str("<polyline fill=\"none\" stroke=\"", colour,
               "\" stroke-width=\"1.8\" stroke-linejoin=\"round\"");
  if (!dashes.empty()) body_ += str(" stroke-dasharray=\"", dashes, "\"");
  body_ += str(" points=\"", points, "\"/>\n");
}

void Drawing::area(std::string_view points, std::string_view colour) {
  body_ += str("<polygon fill=\"", colour, "\" fill-opacity=\"0.18\" stroke=\"none\" points=\"",
               points, "\"/>\n");
}

void Drawing::curve(std::string_view path, std::string_view colour, double width, double opacity,
                    std::string_view hint) {
  body_ += str("<path fill=\"none\" stroke=\"", colour, "\" stroke-width=\"", width,
               "\" stroke-opacity=\"", opacity, "\" d=\"", path, "\"", element_end("path", hint));
}

double Drawing::head(const std::string& title, const std::vector<LegendEntry>& entries) {
  if (!title.empty()) words(16, 26, shortened(title, width_ - 32, 15), {.size = 15, .bold = true});
  const bool speaks_for_itself = entries.size() == 1 && entries[0].name.empty();
  const double below = title.empty() ? 14 : 38;
  return (speaks_for_itself ? below : legend(entries, 16, below)) + 10;
}

double Drawing::legend(const std::vector<LegendEntry>& entries, double x, double y) {
  const double left = x, right = width_ - 16;
  for (const LegendEntry& entry : entries) {
    const std::string name = shortened(entry.name, right - left - kLegendMark - 6);
    const double room = kLegendMark + 6 + text_width(name, kFontSize) + 18;
    if (x > left && x + room - 18 > right) {
      x = left;
      y += kLegendRow;
    }
    const std::string_view colour = colour_of(entry.colour);
    if (entry.box)
      box(x + 6, y + 3, 12, 12, colour, {.edge = kFaint});
    else
      polyline(str(coordinate(x), ",", coordinate(y + 9), " ", coordinate(x + kLegendMark), ",",
                   coordinate(y + 9)),
               colour, entry.dashes);
    words(x + kLegendMark + 6, y + 13.5, name);
    x += room;
  }
  return entries.empty() ? y : y + kLegendRow;
}

std::string Drawing::finish(double height) const {
  const std::string w = coordinate(width_), h = coordinate(height), title = escaped(title_);
  return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", w, " ", h,
             "\" role=\"img\" aria-label=\"", title,
             "\" font-family=\"'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu "
             "Sans', sans-serif\">\n<title>",
             title, "</title>\n", dark_style(), "<rect width=\"", w, "\" height=\"", h,
             "\" fill=\"", kPaper, "\"/>\n", body_, "</svg>\n");
}

}  // namespace octavo::chart

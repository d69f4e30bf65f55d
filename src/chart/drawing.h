#pragma once
// One SVG element while it is drawn: words, lines and boxes on a white ground, everything escaped.

#include <string>
#include <string_view>
#include <vector>

namespace octavo::chart {

constexpr double kFontSize = 13;
inline constexpr const char* kInk = "#24292f";
inline constexpr const char* kFaint = "#57606a";
inline constexpr const char* kGrid = "#e4e8ec";

// Okabe and Ito's colours: told apart by every kind of eye, and on a grey printer mostly too.
std::string_view colour_of(size_t index);
size_t colours();

struct Words {
  const char* anchor = "start";  // start, middle, end
  const char* colour = kInk;
  double size = kFontSize;
  bool bold = false;
  double turn = 0;  // degrees around the given point
};

// What lies under one colour.
struct LegendEntry {
  std::string name;
  size_t colour = 0;
  bool dashed = false;
  bool box = false;  // a box for bars, a stroke for lines
};

class Drawing {
 public:
  Drawing(double width, std::string title);
  void words(double x, double y, std::string_view text, const Words& look = {});
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1);
  void box(double x, double y, double width, double height, std::string_view colour,
           double opacity = 1);
  void dot(double x, double y, double radius, std::string_view colour);
  // `points`: "x,y x,y …"
  void polyline(std::string_view points, std::string_view colour, bool dashed);
  void area(std::string_view points, std::string_view colour);
  // `path`: SVG's own commands, "M x,y C …"
  void curve(std::string_view path, std::string_view colour, double width, double opacity);
  // Entries from left to right, wrapped into rows; returns the y below them.
  double legend(const std::vector<LegendEntry>& entries, double x, double y);
  // A chart's title and its legend (a single entry without a name needs none); returns the y below.
  double head(const std::string& title, const std::vector<LegendEntry>& entries);
  std::string finish(double height) const;

 private:
  double width_;
  std::string title_, body_;
};

std::string coordinate(double value);                   // one digit after the point
double text_width(std::string_view text, double size);  // an estimate for sans-serif
std::string shortened(std::string_view text, double width, double size = kFontSize);  // with "…"

}  // namespace octavo::chart

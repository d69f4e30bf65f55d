#pragma once
// One SVG element while it is drawn: words, lines and boxes, everything escaped. White paper; on a
// screen that is set to dark a dark one, by the picture's own style. What has a hint shows it under
// the pointer.

#include <string>
#include <string_view>
#include <vector>

namespace octavo::chart {

constexpr double kFontSize = 13;
inline constexpr const char* kInk = "#24292f";
inline constexpr const char* kFaint = "#57606a";
inline constexpr const char* kGrid = "#e4e8ec";
inline constexpr const char* kRule = "#8c959f";
inline constexpr const char* kPaper = "#ffffff";
inline constexpr const char* kBad = "#b3261e";  // what does not fit, and nothing else

// Okabe and Ito's colours: told apart by every kind of eye, and on a grey printer mostly too.
std::string_view colour_of(size_t index);
// Of two colours "#rrggbb", as WCAG 2 defines it: 1 (none) to 21 (black on white).
double contrast(std::string_view one, std::string_view other);
size_t colours();
// Of the curve with this colour, "" for the first: curves are told apart without colours, too.
std::string_view dashes_of(size_t index);
inline constexpr std::string_view kLevelDashes = "6 4";  // of a level, and of a second run

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
  std::string_view dashes = "";
  bool box = false;  // a box for bars, a stroke for lines
};

struct BoxLook {
  double opacity = 1;
  std::string_view edge = "";  // the colour of a thin one; "": none
  std::string hint = {};
};

class Drawing {
 public:
  Drawing(double width, std::string title);
  void words(double x, double y, std::string_view text, const Words& look = {});
  void line(double x1, double y1, double x2, double y2, std::string_view colour, double width = 1);
  void box(double x, double y, double width, double height, std::string_view colour,
           const BoxLook& look = {});
  void dot(double x, double y, double radius, std::string_view colour, std::string_view hint = {});
  void hover(double x, double y, double radius, std::string_view hint);  // nothing but the hint
  // `points`: "x,y x,y …"
  void polyline(std::string_view points, std::string_view colour, std::string_view dashes);
  void area(std::string_view points, std::string_view colour);
  // `path`: SVG's own commands, "M x,y C …"
  void curve(std::string_view path, std::string_view colour, double width, double opacity,
             std::string_view hint = {});
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

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <set>

#include "base/error.h"
#include "chart/bar_chart.h"
#include "chart/drawing.h"
#include "chart/escape.h"
#include "chart/line_chart.h"
#include "chart/page.h"
#include "chart/stacked_bars.h"
#include "chart/ticks.h"

namespace octavo::chart {
namespace {

using Numbers = std::vector<double>;
using Labels = std::vector<std::string>;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

TEST(Escape, MarkupAndBrokenTextAreHarmless) {
  EXPECT_EQ(escaped("<a href=\"x\" b='&'>"), "&lt;a href=&quot;x&quot; b=&#39;&amp;&#39;&gt;");
  EXPECT_EQ(escaped("é 漢 😀\n\t"), "é 漢 😀\n\t");
  EXPECT_EQ(escaped(std::string_view("a\0b\x1b", 4)), "a�b�");
  // Cut short, too long a form, a surrogate, beyond the last character.
  EXPECT_EQ(escaped("\xE6\xBC"), "��");
  EXPECT_EQ(escaped("\xC0\xBC"), "��");
  EXPECT_EQ(escaped("\xED\xA0\x80"), "�");
  EXPECT_EQ(escaped("\xF4\x90\x80\x80"), "����");
  EXPECT_EQ(character_at("é"), 2u);
  EXPECT_EQ(character_at("\x80"), 0u);
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(round_ticks(0, 10, 5), (Numbers{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(round_ticks(-1, 1, 4), (Numbers{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(round_ticks(3.1, 3.1, 5), Numbers{3.1});
  EXPECT_TRUE(round_ticks(NAN, 1, 5).empty());
  EXPECT_TRUE(round_ticks(2, 1, 5).empty());
  for (double high : {1e-300, 3e-7, 0.7, 12.0, 1e5, 9e200})
    for (int about : {0, 3, 7}) {
      const Numbers ticks = round_ticks(0, high, about);
      EXPECT_GE(ticks.size(), 1u) << high;
      EXPECT_LE(ticks.size(), 2u + 2 * static_cast<size_t>(about)) << high;
      for (double tick : ticks) EXPECT_LE(tick, high * 1.000001);
    }
  EXPECT_EQ(log_ticks(0.5, 2000, 6), (Numbers{1, 10, 100, 1000}));
  EXPECT_EQ(log_ticks(3, 30, 6), (Numbers{5, 10, 20}));
  EXPECT_GE(log_ticks(3, 3.5, 5).size(), 3u);
  EXPECT_LE(log_ticks(1e-300, 1e300, 6).size(), 14u);
  EXPECT_TRUE(log_ticks(0, 1, 6).empty());
}

TEST(Ticks, LabelsShareOneNotation) {
  EXPECT_EQ(tick_labels({0, 0.25, 0.5}), (Labels{"0", "0.25", "0.50"}));
  EXPECT_EQ(tick_labels({0, 20000, 40000}), (Labels{"0", "20k", "40k"}));
  EXPECT_EQ(tick_labels({0, 500000, 1000000, 1500000}), (Labels{"0", "0.5M", "1.0M", "1.5M"}));
  EXPECT_EQ(tick_labels({0, 2e-4, 4e-4}), (Labels{"0", "2e-4", "4e-4"}));
  EXPECT_EQ(tick_labels({1e-6, 1e-3, 1}), (Labels{"1e-6", "0.001", "1"}));
  EXPECT_EQ(tick_labels({1, 1e3, 1e5, 1e6}), (Labels{"1", "1k", "100k", "1M"}));
  EXPECT_EQ(short_number(1234567), "1.235M");
  EXPECT_EQ(short_number(3.14159), "3.142");
  EXPECT_EQ(short_number(INFINITY), "inf");
}

TEST(LineChart, DrawsEverySeriesOnceAndCountsWhatItCannot) {
  LineChart chart{"loss & <b>", "step", "loss", false, false, {}};
  chart.series.push_back({"a", {0, 1, 2, 3}, {4, 3, NAN, 2}, {}, {}});
  chart.series.push_back({"b", {0, 1, 2, 3}, {5, 4, 3, 2}, {4, 3, 2, 1}, {6, 5, 4, 3}, true});
  const std::string picture = svg(chart);
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  EXPECT_EQ(count(picture, "<polygon"), 1u);
  EXPECT_EQ(count(picture, "stroke-dasharray"), 2u);  // the curve and its legend
  EXPECT_NE(picture.find("1 value is not finite and not drawn"), picture.npos);
  EXPECT_EQ(picture.find("<b>"), picture.npos);
  chart.log_y = true;
  chart.series[0].y = {-1, 0, 1, 10};
  EXPECT_NE(svg(chart).find("2 values are not finite or not positive"), picture.npos);
}

TEST(LineChart, TakesWhatItIsGiven) {
  EXPECT_TRUE(svg(LineChart{}).ends_with("</svg>\n"));
  const double huge = 1e308;
  for (const Numbers& y :
       {Numbers{}, Numbers{1}, Numbers{0, 0}, Numbers{-huge, huge}, Numbers{NAN, INFINITY}})
    for (bool log : {false, true}) {
      LineChart chart{"t", "x", "y", log, log, {{"s", Numbers{1, 2}, y, {}, {}}}};
      const std::string picture = svg(chart);
      EXPECT_EQ(picture.find("nan"), picture.npos);
      EXPECT_EQ(picture.find("inf\""), picture.npos);
    }
  // A million points make no picture of megabytes, and the one spike among them stays.
  Series series{"long", Numbers(1000000), Numbers(1000000, 1.0), {}, {}};
  for (size_t i = 0; i < series.x.size(); ++i) series.x[i] = static_cast<double>(i);
  series.y[654321] = 100;
  const std::string flat = svg(LineChart{"", "", "", false, false, {series}});
  EXPECT_LT(flat.size(), 100000u);
  EXPECT_GT(flat.size(), 5000u);
  EXPECT_NE(flat.find(">100<"), flat.npos);
}

TEST(BarChart, BothSigns) {
  const std::string picture = svg(
      BarChart{"speed", "x", {"qkv", "up"}, {{"forward", {1.5, -0.5}}, {"backward", {NAN, 2}}}});
  EXPECT_EQ(count(picture, "<rect"), 1u + 2 + 4);
  EXPECT_NE(picture.find(">-0.5<"), picture.npos);
  EXPECT_NE(picture.find(">–<"), picture.npos);
  EXPECT_TRUE(svg(BarChart{}).ends_with("</svg>\n"));
}

TEST(StackedBars, LeavesOutPartsThatNobodyHas) {
  const std::string picture = svg(StackedPicture{
      "memory", {{"one GPU", {"weights", "nothing"}, {{"BF16", "3 GB", {3, 0}}}}}, "a note"});
  EXPECT_NE(picture.find("weights"), picture.npos);
  EXPECT_EQ(picture.find("nothing"), picture.npos);
  EXPECT_NE(picture.find("a note"), picture.npos);
}

// A line across the bars says what there is, and what does not fit is red and says so.
TEST(StackedBars, CapacityAndWhatIsAboveIt) {
  StackedBars panel{"one GPU", {"weights", "moments"}, {}};
  panel.rows = {{"BF16", "9 GB: does not fit", {5, 4}, false, true}, {"FP8", "6 GB", {3, 3}, true}};
  panel.limit = 8;
  panel.limit_name = "8 GB to use";
  panel.unit = "GB";
  const std::string picture = svg(StackedPicture{"memory", {panel}, ""});
  EXPECT_NE(picture.find("8 GB to use"), picture.npos);
  EXPECT_EQ(count(picture, str("stroke-dasharray=\"", kLevelDashes, "\"")), 1u);
  EXPECT_NE(picture.find(str("fill=\"", kBad, "\" font-size")), picture.npos);
  EXPECT_NE(picture.find("▶ FP8"), picture.npos);
  // Under the pointer every part has its name and value; large parts have them on them.
  EXPECT_NE(picture.find("<title>BF16, weights: 5 GB</title>"), picture.npos);
  EXPECT_NE(picture.find("<title>FP8, moments: 3 GB</title>"), picture.npos);
  EXPECT_NE(picture.find(">weights 5</text>"), picture.npos);
  EXPECT_NE(picture.find(">moments 3</text>"), picture.npos);
  EXPECT_NE(picture.find(">A weights</text>"), picture.npos) << "in the legend";
}

// The colour of the first part of the second panel is not that of the first panel's.
TEST(StackedBars, OneColourMeansOnePart) {
  const StackedBars memory{"memory", {"weights", "other"}, {{"a", "", {1, 1}}}},
      time{"time", {"GEMMs", "other"}, {{"a", "", {1, 1}}}};
  const std::string picture = svg(StackedPicture{"both", {memory, time}, ""});
  EXPECT_EQ(count(picture, "fill=\"#0a4f82\""), 2u) << "a part and its legend";
  EXPECT_EQ(count(picture, "fill=\"#2b83ba\""), 4u) << "the same part in both panels";
  EXPECT_EQ(count(picture, "fill=\"#7fb8dc\""), 2u);
}

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), expression);
       it != std::sregex_iterator(); ++it)
    found.push_back((*it)[1]);
  return found;
}

// Twenty parts, as many as there are shades: on a grey printer each is known by its edge, the paper
// beside it and its letter, and the letter can be read.
TEST(StackedBars, AreReadWithoutColours) {
  constexpr size_t kParts = 20;
  StackedBars panel{"time", {}, {{"a", "", {}}}};
  for (size_t i = 0; i < kParts; ++i) {
    panel.parts.push_back(str("part number ", i));
    panel.rows[0].values.push_back(3);
  }
  const std::string picture = svg(StackedPicture{"t", {panel}, "", 1400});
  const std::string number = "=\"([0-9.]+)\"", colour = "=\"(#[0-9a-f]{6})\"";
  const std::string part =
      str("<rect x", number, " y=\"74\" width", number, " height=\"26\" fill", colour, " stroke",
          colour, "[^<]*<title>[^<]*</title></rect>\n<text [^>]*fill", colour, "[^>]*>([^<]*)<");
  const std::regex expression(part);
  double end = 0;
  size_t seen = 0;
  for (auto it = std::sregex_iterator(picture.begin(), picture.end(), expression);
       it != std::sregex_iterator(); ++it, ++seen) {
    const std::smatch& m = *it;
    if (seen > 0) EXPECT_GE(std::stod(m[1]) - end, 1) << "paper between " << seen;
    end = std::stod(m[1]) + std::stod(m[2]);
    EXPECT_GE(contrast(m[4].str(), kPaper), 3) << "edge of " << seen;
    EXPECT_GE(contrast(m[5].str(), m[3].str()), 4.4) << "words on " << m[3];
    EXPECT_EQ(m[6].str(), str(std::string(1, static_cast<char>('A' + seen)), " 3"));
  }
  EXPECT_EQ(seen, kParts);
  EXPECT_NE(picture.find(">T part number 19</text>"), picture.npos);
}

// WCAG's 3:1 of everything that is drawn, on white paper and on a dark screen.
TEST(Drawing, ColoursStandOutOnBothPapers) {
  EXPECT_NEAR(contrast("#ffffff", "#000000"), 21, 1e-9);
  EXPECT_NEAR(contrast("#767676", "#FFFFFF"), 4.54, 0.005);  // WCAG's own example of 4.5:1
  std::vector<std::string> drawn = {kInk, kFaint, kRule, kBad};
  for (size_t i = 0; i < colours(); ++i) drawn.emplace_back(colour_of(i));
  const std::string style = svg(LineChart{});
  for (const std::string& colour : drawn) {
    EXPECT_GE(contrast(colour, kPaper), 3) << colour;
    const auto dark = all_of(style, "\\[stroke=\"" + colour + "\"\\]\\{stroke:(#[0-9a-f]{6})\\}");
    ASSERT_EQ(dark.size(), 1u) << colour;
    EXPECT_GE(contrast(dark[0], "#0d1117"), 3) << colour;
  }
}

TEST(BarChart, LevelErrorBarsAndHints) {
  BarChart chart{"speed", "x", {"up"}, {{"forward", {1.5}, {1.25}, {1.75}}}};
  chart.level = 1.0;
  chart.level_name = "as fast";
  const std::string picture = svg(chart);
  EXPECT_NE(picture.find("as fast"), picture.npos);
  EXPECT_EQ(count(picture, "stroke-dasharray"), 1u);
  EXPECT_NE(picture.find("<title>up, forward: 1.5 [1.25, 1.75]</title>"), picture.npos);
}

TEST(LineChart, MarksTicksAndValuesUnderThePointer) {
  LineChart chart{"t", "step", "loss", false, false, {{"a <b>", {0, 5, 10}, {3, 2, 1}, {}, {}}}};
  chart.marks = {{5, 2, "half way"}};
  chart.x_ticks = {5, 99};
  const std::string picture = svg(chart);
  EXPECT_NE(picture.find(">half way</text>"), picture.npos);
  EXPECT_NE(picture.find("<title>a &lt;b&gt;: step 5, loss 2</title>"), picture.npos);
  EXPECT_EQ(picture.find(">99</text>"), picture.npos) << "outside of the axis";
  EXPECT_EQ(picture.find(">10</text>"), picture.npos) << "not a point that was asked for";
}

TEST(LineChart, NamesOfMarksStandAwayFromTheCurve) {
  LineChart chart{"t", "step", "rate", false, false, {{"", {0, 1, 10}, {0, 10, 1}, {}, {}}}};
  chart.marks = {{1, 10, "peak"}, {10, 1, "least"}};
  const std::string picture = svg(chart);
  const auto number = [&](size_t from, const std::string& name) {
    return std::stod(picture.substr(picture.find(name + "=\"", from) + name.size() + 2));
  };
  const auto below_its_dot = [&](const std::string& text) {
    const size_t words = picture.rfind("<text", picture.find(">" + text + "</text>"));
    return number(words, " y") - number(picture.rfind("<circle", words), " cy");
  };
  EXPECT_LT(below_its_dot("peak"), 0);
  EXPECT_GT(below_its_dot("least"), 0);
}

// Curves are told apart in print and by every eye: no two have the same dashes.
TEST(LineChart, CurvesDifferWithoutColours) {
  std::set<std::string_view> seen;
  for (size_t i = 0; i < colours(); ++i) EXPECT_TRUE(seen.insert(dashes_of(i)).second) << i;
  EXPECT_FALSE(seen.contains(kLevelDashes));
}

// On a dark screen, and on no paper.
TEST(Drawing, HasAStyleForDarkScreens) {
  const std::string picture = svg(LineChart{}), page = Page("p").html();
  for (const std::string& text : {picture, page})
    EXPECT_EQ(count(text, "@media screen and (prefers-color-scheme:dark){"), 1u);
  for (size_t i = 0; i < colours(); ++i)
    EXPECT_NE(picture.find(str("[stroke=\"", colour_of(i), "\"]")), picture.npos) << i;
}

TEST(Page, IsOneFileWithNothingFromOutside) {
  Page page("run <1>");
  page.heading("h & h");
  page.text("<script>alert(1)</script>");
  page.table({"name", "value"}, {{"a", "1.5"}, {"<i>", "PASS"}});
  page.picture(svg(LineChart{}));
  page.pre("</pre><img src=x>");
  page.beside({{"left", "<b>"}, {"right", "y"}});
  page.banner("bad", "FAIL", "why");
  const std::string html = page.html();
  EXPECT_EQ(html.find("<script"), html.npos);
  EXPECT_EQ(html.find("<img"), html.npos);
  EXPECT_EQ(html.find("<i>"), html.npos);
  EXPECT_EQ(html.find("src=\""), html.npos);
  EXPECT_NE(html.find("<td class=\"good\">PASS</td>"), html.npos);
  // The name of SVG's namespace is the only address, and nothing is loaded from it.
  EXPECT_EQ(count(html, "://"), count(html, "xmlns=\"http://www.w3.org/2000/svg\""));
}

}  // namespace
}  // namespace octavo::chart

// The pictures and the page of a bench.

#include <cmath>
#include <cstdio>
#include <limits>

#include "bench/report.h"
#include "chart/bar_chart.h"
#include "chart/line_chart.h"
#include "chart/page.h"

namespace octavo::bench {
namespace {

std::string number(double value, const char* format) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

// A picture may be shown alone.
std::string rehearsed(const Bench& bench) {
  return bench.is_rehearsal ? " (rehearsal: no GPU's speed)" : "";
}

double ratio_of(const LayerTimes& times, size_t gemm) {
  if (!times.has_fp8 || gemm >= times.gemms().size())
    return std::numeric_limits<double>::quiet_NaN();
  return std::round(100 * times.ratio(times.gemms()[gemm]).median) / 100;
}

void add_ratio(chart::BarChart::Bars& bars, const LayerTimes& times, size_t gemm) {
  const double ratio = ratio_of(times, gemm);
  bars.values.push_back(ratio);
  const bool known = std::isfinite(ratio);
  bars.low.push_back(known ? times.ratio(times.gemms()[gemm]).low : ratio);
  bars.high.push_back(known ? times.ratio(times.gemms()[gemm]).high : ratio);
}

std::string step_picture(const Bench& bench) {
  const StepTimes& s = *bench.steps;
  chart::BarChart picture;
  picture.title = "A whole step" + rehearsed(bench);
  picture.y_label = "milliseconds";
  picture.height = 300;
  picture.groups = {"BF16", s.fp8_precision};
  chart::BarChart::Bars bars{"median, quartiles", {}};
  for (const Spread& spread : {s.bf16, s.fp8}) {
    bars.values.push_back(1e3 * spread.median);
    bars.low.push_back(1e3 * spread.low);
    bars.high.push_back(1e3 * spread.high);
  }
  picture.bars = {std::move(bars)};
  return chart::svg(picture);
}

std::vector<std::vector<std::string>> gemm_rows(const Bench& bench) {
  std::vector<std::vector<std::string>> rows;
  for (const Entry& e : bench.entries)
    for (const nn::Gemm gemm : e.times.gemms()) {
      const LayerTimes& t = e.times;
      std::vector<std::string> row = {e.name + (e.is_head ? " (training: BF16)" : ""),
                                      octavo::str(t.shape.outputs, " x ", t.shape.inputs),
                                      std::string(nn::name_of(gemm)),
                                      number(1e3 * t.bf16(gemm).median, "%.3f")};
      if (t.has_fp8)
        for (const auto& [value, format] :
             {std::pair{1e3 * t.fp8(gemm).median, "%.3f"},
              std::pair{1e3 * t.quantize(gemm).median, "%.3f"},
              std::pair{t.bf16(gemm).median / t.fp8(gemm).median, "%.2f"},
              std::pair{t.ratio(gemm).median, "%.2f"}})
          row.push_back(number(value, format));
      else
        row.insert(row.end(), {"–", "–", "–", e.refusal});
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace

std::string gemms_picture(const Bench& bench) {
  chart::BarChart picture;
  picture.title = "BF16 time over FP8 time, with quantizing" + rehearsed(bench);
  picture.y_label = "above 1: FP8 is faster";
  picture.level = 1.0;
  picture.level_name = "as fast";
  for (const Entry& e : bench.entries) picture.groups.push_back(e.name);
  for (const nn::Gemm gemm : nn::kGemms) {
    chart::BarChart::Bars bars{std::string(nn::name_of(gemm)), {}};
    for (const Entry& e : bench.entries) add_ratio(bars, e.times, static_cast<size_t>(gemm));
    if (gemm != nn::Gemm::kWeightGradient || !bench.frozen) picture.bars.push_back(std::move(bars));
  }
  return chart::svg(picture);
}

std::string tokens_picture(const Bench& bench) {
  chart::LineChart picture;
  picture.title = "A block's linear layers: BF16 time over FP8 time" + rehearsed(bench);
  picture.x_label = "tokens in a pass";
  picture.y_label = "above 1: FP8 is faster";
  picture.log_x = true;
  chart::Series ratio{.name = "BF16 / FP8 (quartiles)", .x = {}, .y = {}, .low = {}, .high = {}};
  chart::Series even{.name = "as fast", .x = {}, .y = {}, .low = {}, .high = {}, .dashed = true};
  for (const SweepPoint& p : bench.sweep) {
    ratio.x.push_back(static_cast<double>(p.tokens));
    ratio.y.push_back(p.ratio.median);
    ratio.low.push_back(p.ratio.low);
    ratio.high.push_back(p.ratio.high);
    even.x.push_back(static_cast<double>(p.tokens));
    picture.x_ticks.push_back(static_cast<double>(p.tokens));
    even.y.push_back(1);
  }
  picture.series = {std::move(ratio), std::move(even)};
  return chart::svg(picture);
}

std::string page_of(const Bench& bench) {
  chart::Page page("octavo bench: " + bench.model);
  page.text(about_line(bench));
  if (bench.is_rehearsal) page.text(rehearsal_line());
  page.heading("GEMM by GEMM");
  page.picture(gemms_picture(bench));
  page.table({"layer", "weight", "GEMM", "BF16 ms", "FP8 ms", "quantize ms", "alone", "with it"},
             gemm_rows(bench));
  page.heading("From how many tokens on");
  page.picture(tokens_picture(bench));
  page.text(pays_line(bench));
  if (bench.steps) {
    page.heading("Whole step");
    if (bench.steps->problem.empty()) page.picture(step_picture(bench));
    page.text(steps_line(bench));
  }
  return page.html();
}

}  // namespace octavo::bench

// The comparison as one HTML page.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <tuple>

#include "base/error.h"
#include "base/progress.h"
#include "chart/line_chart.h"
#include "chart/page.h"
#include "chart/ticks.h"
#include "compare/comparison.h"

namespace octavo::compare {
namespace {

constexpr size_t kLossWindows = 200, kGapWindows = 48, kTimeWindow = 8, kGapWindow = 16;

// A stretch of steps that is drawn as one point.
struct Window {
  int64_t from, to;
  double middle() const { return (static_cast<double>(from) + static_cast<double>(to)) / 2; }
};

std::vector<Window> windows_of(const std::vector<int64_t>& steps, size_t most, size_t least) {
  const size_t count = std::clamp<size_t>(steps.size() / least, 1, most);
  std::vector<Window> windows;
  if (steps.empty()) return windows;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = i * steps.size() / count, end = (i + 1) * steps.size() / count;
    if (begin < end) windows.push_back({steps[begin], steps[end - 1]});
  }
  return windows;
}

// Of one run's steps in a window; a value that is not finite or not said is left out.
template <typename Value>
std::vector<double> values_in(const RunFolder& run, const Window& window, Value&& value) {
  std::vector<double> values;
  for (auto at = run.steps.lower_bound(window.from);
       at != run.steps.end() && at->first <= window.to; ++at)
    if (const std::optional<double> one = value(at->second)) values.push_back(*one);
  return values;
}

std::optional<double> loss_at(const StepPoint& point) {
  return point.loss;
}

std::optional<double> speed_at(const StepPoint& point) {
  return point.speed();
}

std::vector<int64_t> steps_of(const RunFolder& run) {
  std::vector<int64_t> steps;
  for (const auto& [step, point] : run.steps) steps.push_back(step);
  return steps;
}

using Side = std::shared_ptr<const RunFolder> Pair::*;

chart::Series loss_curve(const Comparison& c, Side side, const std::string& name) {
  chart::Series series{.name = name};
  for (const Window& window : windows_of(steps_of(*(c.pairs[0].*side)), kLossWindows, 1)) {
    std::vector<double> means;
    for (const Pair& pair : c.pairs)
      if (const auto values = values_in(*(pair.*side), window, loss_at); !values.empty())
        means.push_back(mean_of(values));
    series.x.push_back(window.middle());
    series.y.push_back(means.empty() ? NAN : mean_of(means));
  }
  return series;
}

// B's loss over A's, in percent, window by window: with several seeds the interval is over them,
// with one pair over the window's own steps. The first tenth is left out: losses fall so fast there
// that its gaps would hide all others.
chart::Series gap_curve(const Comparison& c) {
  chart::Series series{.name = "gap of the training loss, 95% interval"};
  std::vector<int64_t> steps = c.pairs[0].pairing.steps;
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 10));
  for (const Window& window : windows_of(steps, kGapWindows, kGapWindow)) {
    std::vector<double> gaps;
    std::optional<Interval> interval;
    for (const Pair& pair : c.pairs) {
      const auto a = values_in(*pair.a, window, loss_at), b = values_in(*pair.b, window, loss_at);
      if (a.size() != b.size() || a.size() < 4) continue;
      std::vector<double> differences(a.size());
      const double mean = mean_of(a);
      for (size_t i = 0; i < a.size(); ++i) differences[i] = 100 * (b[i] - a[i]) / mean;
      gaps.push_back(mean_of(differences));
      if (c.pairs.size() == 1) interval = correlated_mean(differences);
    }
    if (gaps.size() > 1) interval = independent_mean(gaps);
    if (!interval) continue;
    series.x.push_back(window.middle());
    series.y.push_back(interval->mean);
    series.low.push_back(interval->low);
    series.high.push_back(interval->high);
  }
  return series;
}

chart::Series level(const std::string& name, const chart::Series& beside, double value) {
  if (beside.x.empty()) return {.name = name};
  return {name, {beside.x.front(), beside.x.back()}, {value, value}, {}, {}, true};
}

chart::Series validation_curve(const Comparison& c, Side side, const std::string& name) {
  chart::Series series{.name = name};
  for (const auto& [step, loss] : (c.pairs[0].*side)->evaluations) {
    std::vector<double> losses;
    for (const Pair& pair : c.pairs)
      if (const auto found = (pair.*side)->evaluations.find(step);
          found != (pair.*side)->evaluations.end() && found->second)
        losses.push_back(*found->second);
    series.x.push_back(static_cast<double>(step));
    series.y.push_back(losses.empty() ? NAN : mean_of(losses));
  }
  return series;
}

chart::Series speed_curve(const Comparison& c, Side side, const std::string& name) {
  chart::Series series{.name = name};
  for (const Window& window : windows_of(steps_of(*(c.pairs[0].*side)), kGapWindows, kTimeWindow)) {
    std::vector<double> medians;
    for (const Pair& pair : c.pairs)
      if (auto values = values_in(*(pair.*side), window, speed_at); !values.empty())
        medians.push_back(median_of(std::move(values)));
    if (medians.empty()) continue;
    series.x.push_back(window.middle());
    series.y.push_back(mean_of(medians));
  }
  return series;
}

// The same curve from a step on, where its axis can be larger.
chart::Series tail_of(const chart::Series& whole, int64_t from) {
  chart::Series tail{.name = whole.name};
  tail.dashed = whole.dashed;
  for (size_t i = 0; i < whole.x.size(); ++i) {
    if (whole.x[i] < static_cast<double>(from)) continue;
    tail.x.push_back(whole.x[i]);
    tail.y.push_back(whole.y[i]);
  }
  return tail;
}

void add_curves(chart::Page& page, const Comparison& c, double bound) {
  const std::string a = "A: " + c.label_a, b = "B: " + c.label_b;
  const std::string of = c.pairs.size() > 1 ? str(", mean of ", c.pairs.size(), " seeds") : "";
  page.heading("Curves");
  chart::Series first = loss_curve(c, &Pair::a, a), second = loss_curve(c, &Pair::b, b);
  second.dashed = true;
  page.picture(chart::svg(
      chart::LineChart{"Training loss" + of, "step", "loss", false, false, {first, second}}));
  const int64_t from = c.pairs[0].tail_from;
  const chart::Series last_a = tail_of(first, from), last_b = tail_of(second, from);
  if (last_a.x.size() > 2 && last_b.x.size() > 2)
    page.picture(chart::svg(chart::LineChart{
        str("Training loss in the part that is judged, from step ", from, " on", of),
        "step",
        "loss",
        false,
        false,
        {last_a, last_b}}));
  const chart::Series gap = gap_curve(c);
  if (!gap.x.empty() && c.pairs[0].pairing.comparable)
    page.picture(
        chart::svg(chart::LineChart{"B's training loss against A's, after the first tenth" + of,
                                    "step",
                                    "percent",
                                    false,
                                    false,
                                    {gap, level(str("bound: +", bound, "%"), gap, bound)}}));
  chart::Series val_a = validation_curve(c, &Pair::a, a), val_b = validation_curve(c, &Pair::b, b);
  val_b.dashed = true;
  if (!val_a.x.empty() || !val_b.x.empty())
    page.picture(chart::svg(
        chart::LineChart{"Validation loss" + of, "step", "loss", false, false, {val_a, val_b}}));
  chart::LineChart speed{str("Speed", of, c.on_cpu ? " (CPU rehearsal)" : ""),
                         "step",
                         "tokens per second",
                         false,
                         false,
                         {speed_curve(c, &Pair::a, a), speed_curve(c, &Pair::b, b)}};
  speed.series[1].dashed = true;  // B is dashed in every picture
  speed.height = 300;
  page.picture(chart::svg(speed));
}

void add_pairs(chart::Page& page, const Comparison& c) {
  if (c.pairs.size() < 2) return;
  page.heading("Seed by seed");
  std::vector<std::vector<std::string>> rows;
  for (const Pair& pair : c.pairs) {
    const auto text = [](bool there, const char* format, double value) {
      char cell[48];
      std::snprintf(cell, sizeof cell, format, value);
      return there ? std::string(cell) : "–";
    };
    const auto& [train, val, speed] = std::tie(pair.train, pair.validation, pair.speed);
    rows.push_back(
        {pair.a->settings ? std::to_string(pair.a->settings->seed) : "–",
         text(train.has_value(), "%+.2f%%", train ? train->interval.mean : 0),
         text(val.has_value(), "%+.2f%%", val ? 100 * (val->b - val->a) / val->a : 0),
         text(speed.has_value(), "%.3fx", speed ? speed->interval.mean : 0),
         text(pair.task.has_value(), "%+.2f", pair.task ? pair.task->b - pair.task->a : 0)});
  }
  page.table({"seed", "training gap", "validation gap", "speed", "HellaSwag points"}, rows);
}

void add_runs(chart::Page& page, const Comparison& c) {
  page.heading("The runs");
  std::vector<std::vector<std::string>> rows;
  for (const Pair& pair : c.pairs)
    for (const auto& [run, side] : {std::pair(pair.a, "A"), std::pair(pair.b, "B")})
      rows.push_back({side, run->folder.string(), run->label(), run->device,
                      std::to_string(run->steps.size()),
                      run->fp8_share ? chart::short_number(100 * *run->fp8_share) + "%" : "–",
                      run->peak_bytes > 0 ? format_bytes(run->peak_bytes) : "–", run->status});
  page.table({"", "folder", "precision", "device", "steps", "FLOPs in FP8", "memory", "status"},
             rows);
  if (!c.pairs[0].pairing.differences.empty()) {
    rows.clear();
    for (const Difference& d : c.pairs[0].pairing.differences) rows.push_back({d.key, d.a, d.b});
    page.text("Settings in which they differ:");
    page.table({"key", "A", "B"}, rows);
  }
}

void add_samples(chart::Page& page, const Comparison& c) {
  const Pair& pair = c.pairs[0];
  if (pair.a->sample_step < 0 && pair.b->sample_step < 0) return;
  page.heading("Samples");
  const auto named = [](const char* side, const std::string& label, const RunFolder& run) {
    return std::pair(run.sample_step < 0 ? str(side, ": ", label, ": none")
                                         : str(side, ": ", label, ", step ", run.sample_step),
                     run.sample);
  };
  page.beside({named("A", c.label_a, *pair.a), named("B", c.label_b, *pair.b)});
}

}  // namespace

std::string page_of(const Comparison& c, const Bounds& bounds) {
  chart::Page page(str(c.label_b, " against ", c.label_a));
  std::string open;
  for (const Judgement& line : c.judgements)
    if (line.verdict == c.verdict && c.verdict != Verdict::kPass)
      open += str(open.empty() ? "" : " · ", line.name, line.gap.empty() ? "" : " ", line.gap,
                  line.why.empty() ? "" : str(" – ", line.why));
  page.banner(c.verdict == Verdict::kPass   ? "good"
              : c.verdict == Verdict::kFail ? "bad"
                                            : "unclear",
              std::string(name_of(c.verdict)), open.empty() ? "Every bound holds." : open);
  std::vector<std::vector<std::string>> rows;
  for (const Judgement& line : c.judgements) {
    const auto or_dash = [](const std::string& text) { return text.empty() ? "–" : text; };
    rows.push_back({line.name, or_dash(line.a), or_dash(line.b), or_dash(line.gap),
                    or_dash(line.bound), std::string(name_of(line.verdict))});
  }
  page.table({"", "A", "B", "B against A", "wanted", "verdict"}, rows);
  for (const Judgement& line : c.judgements)
    if (!line.why.empty()) page.text(str("• ", line.name, ": ", line.why));
  for (const std::string& remark : c.remarks) page.text("• " + remark);
  add_curves(page, c, bounds.train_gap);
  add_pairs(page, c);
  add_samples(page, c);
  add_runs(page, c);
  return page.html();
}

}  // namespace octavo::compare

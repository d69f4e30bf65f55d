// The page of a sweep: its best trial, parallel coordinates, how it got there, and every trial.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/progress.h"
#include "chart/line_chart.h"
#include "chart/page.h"
#include "chart/parallel.h"
#include "config/key_makers.h"
#include "monitor/metric_file.h"
#include "sweep/agent.h"
#include "sweep/report.h"

namespace octavo::sweep {
namespace {

constexpr size_t kMostLines = 2000, kMostRows = 1000;  // on one page

// The values of an axis with few of them: numbers by size, words as they were listed.
std::vector<std::string> axis_choices(const Parameter& parameter) {
  constexpr double kFewIntegers = 12;
  if (parameter.kind == Kind::kInteger && parameter.high - parameter.low < kFewIntegers)
    return all_values(parameter, static_cast<size_t>(kFewIntegers));
  std::vector<std::string> choices = parameter.values;
  const auto number = [](const std::string& text) { return config::parse_number<double>(text); };
  if (std::ranges::all_of(choices, [&](const auto& text) { return number(text).has_value(); }))
    std::ranges::stable_sort(choices, {}, [&](const auto& text) { return *number(text); });
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  return choices;
}

std::string parallel_picture(const Report& report) {
  const Definition& sweep = report.definition;
  chart::ParallelChart picture{.title = "Parallel coordinates: one line for each trial",
                               .high_is_good = sweep.maximize};
  std::vector<size_t> shown;
  for (size_t p = 0; p < sweep.parameters.size(); ++p) {
    const Parameter& parameter = sweep.parameters[p];
    if (!varies(parameter)) continue;
    shown.push_back(p);
    picture.axes.push_back({parameter.name, is_logarithmic(parameter)});
    picture.axes.back().choices = axis_choices(parameter);
  }
  picture.axes.push_back({sweep.metric});
  for (const Trial& trial : report.trials) {
    if (!trial.metric || picture.lines.size() == kMostLines) continue;
    chart::ParallelLine line;
    for (size_t i = 0; i < shown.size(); ++i) {
      const std::string& text = trial.values[shown[i]];
      const std::vector<std::string>& choices = picture.axes[i].choices;
      const auto place = std::ranges::find(choices, text);
      line.values.push_back(choices.empty()
                                ? config::parse_number<double>(text).value_or(std::nan(""))
                                : static_cast<double>(place - choices.begin()));
    }
    line.values.push_back(*trial.metric);
    picture.lines.push_back(std::move(line));
  }
  picture.width = std::max(820, static_cast<int>(150 * picture.axes.size()));
  return chart::svg(picture);
}

// Every trial in the order of its number, and the best until then.
std::string progress_picture(const Report& report) {
  std::vector<const Trial*> judged;
  for (const Trial& trial : report.trials)
    if (trial.metric && trial.state == TrialState::kFinished) judged.push_back(&trial);
  std::ranges::sort(judged, {}, &Trial::number);
  chart::Series each{.name = "trial"}, best{.name = "best until then", .dashed = true};
  for (const Trial* trial : judged) {
    const double value = *trial->metric;
    const bool better = best.y.empty() || is_better(report.definition, value, best.y.back());
    for (chart::Series* series : {&each, &best})
      series->x.push_back(static_cast<double>(trial->number));
    each.y.push_back(value);
    best.y.push_back(better ? value : best.y.back());
  }
  chart::LineChart picture;
  picture.title = "What the trials gave";
  picture.x_label = "trial";
  picture.y_label = report.definition.metric;
  picture.series = {each, best};
  picture.height = 300;
  return chart::svg(picture);
}

// The metric of the best trials as they ran, from their own files; "": none are there any more.
std::string curves_picture(const Report& report) {
  constexpr size_t kMostCurves = 6;
  chart::LineChart picture;
  for (const Trial& trial : report.trials) {
    if (!trial.metric || picture.series.size() == kMostCurves) continue;
    monitor::MetricFile file(run_folder(report.plan, trial) / "metrics.jsonl",
                             report.definition.metric);
    file.update();
    chart::Series series{.name = str("trial ", trial.number)};
    for (const double value : file.values()) {
      series.x.push_back(static_cast<double>(series.x.size() + 1));
      series.y.push_back(value);
    }
    if (series.x.size() > 1) picture.series.push_back(std::move(series));
  }
  if (picture.series.empty()) return "";
  picture.title = "The best trials as they ran";
  picture.x_label = str("records of ", report.definition.metric);
  picture.y_label = report.definition.metric;
  return chart::svg(picture);
}

void add_importance(chart::Page& page, const Report& report) {
  if (report.importance.empty()) return;
  page.heading("Correlation with the metric");
  page.text(str("Numbers: Spearman's rank correlation with ", report.definition.metric,
                " (+ it rises with the parameter, - it falls). Words: the correlation ratio of the "
                "ranks. A handful of trials proves nothing; an even grid or random draws make it "
                "fair, bayes does not."));
  std::vector<std::vector<std::string>> rows;
  for (const Importance& entry : report.importance) {
    const auto filled = static_cast<size_t>(std::lround(20 * std::abs(entry.correlation)));
    std::string bar;
    for (size_t i = 0; i < filled; ++i) bar += "█";
    rows.push_back({entry.parameter, correlation_text(entry), bar});
  }
  page.table({"parameter", "correlation", ""}, rows);
}

std::string fixed_text(const Definition& sweep) {
  std::string text;
  for (const Parameter& p : sweep.parameters)
    if (!varies(p)) text += str(text.empty() ? "" : ", ", p.name, " ", p.values.front());
  return text;
}

void add_facts(chart::Page& page, const Report& report) {
  const Definition& sweep = report.definition;
  const Counts& c = report.counts;
  page.text(str("Method ", name_of(sweep.method), ", ", sweep.maximize ? "maximize " : "minimize ",
                sweep.metric, ". ", c.ended(),
                report.total > 0 ? str(" of ", report.total) : std::string(),
                " trials ended: ", c.finished, " finished, ", c.stopped_early, " stopped early, ",
                c.failed, " failed; ", c.running, " running, ", c.waiting, " waiting."));
  if (const std::string fixed = fixed_text(sweep); !fixed.empty())
    page.text("The same in every trial: " + fixed + ".");
  if (!report.has_best) {
    page.banner("unclear", "No trial has finished yet", "There is nothing to compare.");
    return;
  }
  const Trial& best = report.trials.front();
  page.banner(
      "good", str("Best: ", shown_values(sweep, best)),
      str(sweep.metric, " ", metric_text(best), ", trial ", best.number, ", run ", best.run_name));
}

}  // namespace

std::string report_html(const Report& report) {
  chart::Page page("Sweep " + report.definition.name);
  add_facts(page, report);
  const auto judged = std::ranges::count_if(
      report.trials, [](const Trial& trial) { return trial.metric.has_value(); });
  if (judged > 0) page.picture(parallel_picture(report));
  if (report.has_best && report.counts.finished > 1) page.picture(progress_picture(report));
  if (const std::string curves = curves_picture(report); !curves.empty()) page.picture(curves);
  add_importance(page, report);
  page.heading("Trials");
  std::vector<std::vector<std::string>> rows;
  for (const Trial& trial : report.trials)
    if (rows.size() < kMostRows) rows.push_back(table_row(report, trial));
  page.table(table_head(report), rows);
  if (report.trials.size() > kMostRows)
    page.text(str("The best ", kMostRows, " of ", report.trials.size(),
                  " trials; octavo sweep report --json has all."));
  std::vector<std::vector<std::string>> reasons;
  for (const Trial& trial : report.trials)
    if (!trial.reason.empty() && reasons.size() < kMostRows)
      reasons.push_back(
          {std::to_string(trial.number), std::string(name_of(trial.state)), trial.reason});
  if (!reasons.empty()) {
    page.heading("Trials that did not finish, and why");
    page.table({"trial", "state", "reason"}, reasons);
  }
  page.heading("The sweep's file");
  page.pre(report.plan.yaml);
  return page.html();
}

}  // namespace octavo::sweep

#include "sweep/report.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "base/printed.h"
#include "base/progress.h"
#include "sweep/agent.h"
#include "sweep/agent_name.h"

namespace octavo::sweep {
namespace {

constexpr size_t kShownTrials = 100;  // on a terminal
constexpr size_t kMostReason = 400;   // bytes of what a trial said last

double seconds_of(const Trial& trial) {
  const double end = trial.ended > 0 ? trial.ended : now_seconds();
  return trial.started > 0 ? std::max(0.0, end - trial.started) : 0;
}

int64_t order_of(const Trial& trial) {
  return trial.state == TrialState::kFinished       ? 0
         : trial.state == TrialState::kStoppedEarly ? 1
                                                    : 2;
}

}  // namespace

Report report_of(Store& store) {
  Report report{.plan = store.plan(),
                .definition = store.definition(),
                .total = store.total(),
                .counts = store.counts(),
                .trials = store.trials()};
  report.importance = importances(report.definition, report.trials);
  std::ranges::stable_sort(report.trials, [&](const Trial& a, const Trial& b) {
    if (order_of(a) != order_of(b)) return order_of(a) < order_of(b);
    if (!a.metric || !b.metric) return a.metric.has_value() && !b.metric.has_value();
    return is_better(report.definition, *a.metric, *b.metric);
  });
  report.has_best = !report.trials.empty() &&
                    report.trials.front().state == TrialState::kFinished &&
                    report.trials.front().metric.has_value();
  return report;
}

std::string metric_text(const Trial& trial) {
  if (!trial.metric) return "–";
  return printed("%.6g", *trial.metric);
}

std::vector<std::string> table_head(const Report& report) {
  std::vector<std::string> head = {"trial", report.definition.metric};
  for (const Parameter& p : report.definition.parameters)
    if (varies(p)) head.push_back(p.name);
  head.insert(head.end(), {"state", "attempts", "time", "run"});
  return head;
}

std::vector<std::string> table_row(const Report& report, const Trial& trial) {
  std::vector<std::string> row = {std::to_string(trial.number), metric_text(trial)};
  for (size_t p = 0; p < report.definition.parameters.size(); ++p)
    if (varies(report.definition.parameters[p])) row.push_back(trial.values[p]);
  row.insert(row.end(), {std::string(name_of(trial.state)), std::to_string(trial.attempts),
                         format_duration(seconds_of(trial)), trial.run_name});
  return row;
}

std::string status_text(const Report& report) {
  const Definition& sweep = report.definition;
  const Counts& c = report.counts;
  std::string text = str(sweep.name, ": ", name_of(sweep.method), ", ",
                         sweep.maximize ? "maximize " : "minimize ", sweep.metric, "\n");
  text += str(c.ended(), report.total > 0 ? str(" of ", report.total) : std::string(),
              " trials ended: ", c.finished, " finished, ", c.stopped_early, " stopped early, ",
              c.failed, " failed; ", c.running, " running, ", c.waiting, " waiting");
  const double left = time_left(report.trials, report.total, c.running);
  text += left > 0 && c.running > 0 ? str("; about ", format_duration(left), " left\n") : "\n";
  for (const Trial& trial : report.trials)
    if (trial.state == TrialState::kRunning)
      text +=
          str("  running: trial ", trial.number, " on ", shown_agent(trial.agent),
              state_of_agent(trial.agent) == AgentState::kGone
                  ? ", which is gone: start an agent and it is taken up again"
                  : str(", heard of ",
                        format_duration(std::max(0.0, now_seconds() - trial.heartbeat)), " ago"),
              "\n");
  if (report.has_best) {
    const Trial& best = report.trials.front();
    text += str("best: trial ", best.number, ", ", sweep.metric, " ", metric_text(best), " with ",
                shown_values(sweep, best), "; ", run_folder(report.plan, best).string(), "\n");
  }
  return text;
}

std::string report_text(const Report& report) {
  std::string text = status_text(report);
  if (report.trials.empty()) return text;
  std::vector<std::vector<std::string>> rows = {table_head(report)};
  for (const Trial& trial : report.trials)
    if (rows.size() <= kShownTrials) rows.push_back(table_row(report, trial));
  text += "\n" + table_text(rows);
  if (report.trials.size() > kShownTrials)
    text += str("  and ", report.trials.size() - kShownTrials, " more, which --json has\n");
  size_t reasons = 0;
  for (const Trial& trial : report.trials)
    if (!trial.reason.empty() && ++reasons <= kShownTrials)
      text += str("  trial ", trial.number, " ", name_of(trial.state), ": ",
                  printable(trial.reason, kMostReason), "\n");
  if (report.importance.empty()) return text;
  text += str("\nrank correlation with ", report.definition.metric,
              " (many trials are needed before it means much)\n");
  rows.clear();
  for (const Importance& entry : report.importance)
    rows.push_back({entry.parameter, correlation_text(entry)});
  return text + table_text(rows);
}

nlohmann::ordered_json report_json(const Report& report) {
  using OrderedJson = nlohmann::ordered_json;
  const auto or_null = [](const std::optional<double>& value) {
    return value && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson();
  };
  const Counts& c = report.counts;
  OrderedJson json = {{"name", report.definition.name},
                      {"method", name_of(report.definition.method)},
                      {"metric", report.definition.metric},
                      {"goal", report.definition.maximize ? "maximize" : "minimize"},
                      {"total", report.total},
                      {"finished", c.finished},
                      {"stopped_early", c.stopped_early},
                      {"failed", c.failed},
                      {"running", c.running},
                      {"waiting", c.waiting}};
  json["best"] = report.has_best ? OrderedJson(report.trials.front().number) : OrderedJson();
  for (const Importance& entry : report.importance)
    json["importance"][entry.parameter] = entry.correlation;
  json["trials"] = OrderedJson::array();
  for (const Trial& trial : report.trials) {
    OrderedJson parameters = OrderedJson::object();
    for (size_t p = 0; p < report.definition.parameters.size(); ++p)
      parameters[report.definition.parameters[p].name] = trial.values[p];
    json["trials"].push_back({{"trial", trial.number},
                              {"state", name_of(trial.state)},
                              {"value", or_null(trial.metric)},
                              {"parameters", parameters},
                              {"iterations", trial.iterations},
                              {"attempts", trial.attempts},
                              {"seconds", seconds_of(trial)},
                              {"run", run_folder(report.plan, trial).string()},
                              {"reason", trial.reason}});
  }
  return json;
}

}  // namespace octavo::sweep

#include "foreign_logs/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace octavo::foreign_logs {
namespace {

constexpr size_t kMostValues = 20'000'000, kMostNames = 20'000, kLongestName = 200;
constexpr int64_t kMostSessions = 1000;

std::optional<double> if_finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::vector<std::string> names_of(Role role) {
  std::vector<std::string> names;
  for (const KnownMetric& known : known_metrics())
    if (known.role == role) names.push_back("'" + std::string(known.name) + "'");
  return names;
}

}  // namespace

Metrics::Series& Metrics::series_of(std::string_view name) {
  name = name.substr(0, kLongestName);
  if (const auto found = series_.find(name); found != series_.end()) return found->second;
  const bool kept = find_metric(name) != nullptr || is_loss(name);
  if (!kept && series_.size() >= kMostNames) {
    ++unnamed_;
    return beyond_;
  }
  Series& made = series_[std::string(name)];
  made.kept = kept;
  return made;
}

bool Metrics::is_loss(std::string_view name) const {
  if (name.empty()) return false;
  if (name == options_.loss_name || name == options_.val_loss_name) return true;
  const KnownMetric* known = find_metric(name);
  return known != nullptr && (known->role == Role::kLoss || known->role == Role::kValidation);
}

bool Metrics::add(std::string_view name, int64_t step, double value) {
  if (step < 0 || step > kLastStep) return false;
  Series& series = series_of(name);
  if (!series.kept) return true;
  if (++values_ > kMostValues)
    fail(ExitCode::kUsage, "foreign_logs", "wanted at most ", kMostValues,
         " values of losses, times and tokens, found more; cut the log to the part of interest");
  series.points.push_back({step, value});
  return true;
}

void Metrics::saw(std::string_view name) {
  series_of(name);
}

void Metrics::forget_from(int64_t step) {
  if (++sessions_ > kMostSessions)
    fail(ExitCode::kDamaged, "foreign_logs", "wanted at most ", kMostSessions,
         " sessions of a run, found more; the log is damaged, or of many runs");
  for (auto& [name, series] : series_) {
    const size_t before = series.points.size();
    std::erase_if(series.points, [&](const Point& point) { return point.step >= step; });
    values_ -= before - series.points.size();
    if (is_loss(name)) forgotten_ += static_cast<int64_t>(before - series.points.size());
  }
}

void Metrics::refuse_names(const fs::path& path, const std::string& wanted) const {
  std::vector<std::string> names;
  for (const bool losses : {true, false})  // what is called a loss first
    for (const auto& [name, series] : series_) {
      if (std::ranges::find(step_names(), name) != step_names().end()) continue;
      const bool is_one = name.find("loss") != name.npos || name.find("Loss") != name.npos;
      if (is_one == losses) names.push_back("'" + printable(name) + "'");
    }
  constexpr size_t kShown = 24;
  const size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(std::min(names.size(), kShown));
  fail(ExitCode::kUsage, "foreign_logs", printable(path.string(), 400), ": wanted ", wanted,
       ", found ", names.empty() ? "no named value" : join(names, ", "),
       more > 0 ? str(" and ", more, " more") : "",
       without_step_ > 0 ? str(" (", without_step_, " rows have no step)") : "",
       "; name it with --loss_name, that of the validation with --val_loss_name");
}

Metrics::Chosen Metrics::choose(Role role, const std::string& asked, const fs::path& path) const {
  if (!asked.empty()) {
    const auto found = series_.find(asked);
    if (found == series_.end() || found->second.points.empty())
      refuse_names(path, "values named '" + printable(asked) + "'");
    return {asked, &found->second, 1};
  }
  for (const KnownMetric& known : known_metrics()) {
    if (known.role != role) continue;
    const auto found = series_.find(known.name);
    if (found != series_.end() && !found->second.points.empty() &&
        known.name != options_.loss_name && known.name != options_.val_loss_name)
      return {std::string(known.name), &found->second, known.unit};
  }
  return {};
}

void Metrics::take_steps(Log& log, const Chosen& loss) const {
  for (const Point& point : loss.series->points) {
    const auto [at, is_new] = log.steps.try_emplace(point.step);
    log.repeated_steps += !is_new;
    at->second.loss = if_finite(point.value);
  }
  for (const auto& [step, point] : log.steps) log.lost_losses += !point.loss;
}

// Times, tokens and rates of the steps that have a loss.
void Metrics::take_speed(Log& log, const fs::path& path) const {
  const auto take = [&](Role role, double LogStep::*member) {
    const Chosen chosen = choose(role, "", path);
    if (chosen.series == nullptr) return false;
    for (const Point& point : chosen.series->points)
      if (const auto at = log.steps.find(point.step); at != log.steps.end())
        at->second.*member = std::isfinite(point.value) && point.value > 0
                                 ? std::min(point.value * chosen.unit, 9e18)
                                 : 0;
    return true;
  };
  const bool rate = take(Role::kTokensPerSecond, &LogStep::tokens_per_second);
  const bool tokens = take(Role::kTokens, &LogStep::tokens);
  if (!tokens && options_.step_tokens > 0)
    for (auto& [step, point] : log.steps)
      point.tokens = static_cast<double>(step) * static_cast<double>(options_.step_tokens);
  if (tokens && options_.step_tokens > 0)
    log.remarks.push_back("the log says how many tokens were trained on; step_tokens is not used");
  const bool timed = take(Role::kSeconds, &LogStep::seconds);
  // Tokens and times are of all GPUs, so they come before the rate of one.
  const bool counted = timed && (tokens || options_.step_tokens > 0);
  if (!rate && !counted)
    log.rate_of_one_gpu = take(Role::kTokensPerGpuSecond, &LogStep::tokens_per_second);
  if (log.rate_of_one_gpu)
    log.remarks.push_back(
        "its tokens per second are of one GPU; of all of them: the trainer's TensorBoard or W&B "
        "log, which has times (with --step_tokens N where it has no tokens)");
  if (timed) return;
  // By the clock at which steps were logged.
  if (!take(Role::kClock, &LogStep::seconds)) return;
  int64_t step_before = 0;
  double clock_before = 0;
  for (auto& [step, point] : log.steps) {
    const double clock = point.seconds;
    point.seconds = clock_before > 0 && clock > clock_before
                        ? (clock - clock_before) / static_cast<double>(step - step_before)
                        : 0;
    step_before = step, clock_before = clock;
  }
  log.remarks.push_back(
      "the time of a step is that between two lines of the log, evaluations included");
}

void Metrics::collect_remarks(Log& log, Role role, const std::string& used) const {
  std::vector<std::string> others;
  for (const KnownMetric& known : known_metrics())
    if (const auto found = series_.find(known.name); known.role == role && known.name != used &&
                                                     found != series_.end() &&
                                                     !found->second.points.empty())
      others.emplace_back(known.name);
  if (!others.empty() && !used.empty())
    log.remarks.push_back(str("'", printable(used), "' is the ",
                              role == Role::kLoss ? "training" : "validation", " loss; '",
                              join(others, "', '"), "' is there too and is not used"));
}

Log Metrics::log(const fs::path& path, const std::string& format) const {
  Log log{.path = path, .format = format, .remarks = remarks_};
  const Chosen loss = choose(Role::kLoss, options_.loss_name, path);
  if (loss.series == nullptr)
    refuse_names(path,
                 str("a training loss (", join(names_of(Role::kLoss), ", "), ") in ", format));
  log.loss_name = loss.name;
  take_steps(log, loss);
  const Chosen validation = choose(Role::kValidation, options_.val_loss_name, path);
  log.val_loss_name = validation.name;
  if (validation.series != nullptr)
    for (const Point& point : validation.series->points)
      log.evaluations[point.step] = if_finite(point.value);
  take_speed(log, path);
  const Chosen memory = choose(Role::kPeakBytes, "", path);
  if (memory.series != nullptr)
    for (const Point& point : memory.series->points)
      if (std::isfinite(point.value))
        log.peak_bytes = std::max(log.peak_bytes, point.value * memory.unit);
  log.bad_lines = bad_lines_;
  log.skipped_steps = skipped_steps_;
  collect_remarks(log, Role::kLoss, log.loss_name);
  collect_remarks(log, Role::kValidation, log.val_loss_name);
  const auto count = [&](int64_t number, std::string_view what) {
    if (number > 0) log.remarks.push_back(str(number, " ", what));
  };
  count(bad_lines_, "lines or records cannot be read and were left out");
  count(without_step_, "rows without a step were left out");
  count(unnamed_, "values have names beyond those that are kept");
  count(forgotten_, "losses of before a resume do not count: the resumed session took them back");
  count(log.repeated_steps, "steps stand there more than once; the last of each counts");
  count(log.lost_losses, "training losses are not finite");
  count(skipped_steps_, "steps were skipped by the trainer");
  return log;
}

void Rows::take(const std::vector<Field>& row) {
  const auto value_of = [&](std::string_view name) {
    const auto at = std::ranges::find(row, name, &Field::name);
    return at == row.end() ? std::nullopt : std::optional(at->value);
  };
  const bool has_loss =
      std::ranges::any_of(row, [&](const Field& field) { return metrics_.is_loss(field.name); });
  if (step_name_.empty() && has_loss)
    for (const std::string_view name : step_names())
      if (step_name_.empty() && value_of(name)) step_name_ = name;
  const std::optional<double> step = step_name_.empty() ? std::nullopt : value_of(step_name_);
  const bool whole =
      step && *step >= 0 && *step <= static_cast<double>(kLastStep) && *step == std::floor(*step);
  if (has_loss && !whole) metrics_.count_without_step();
  for (const Field& field : row) {
    if (whole)
      metrics_.add(field.name, static_cast<int64_t>(*step), field.value);
    else
      metrics_.saw(field.name);
  }
}

}  // namespace octavo::foreign_logs

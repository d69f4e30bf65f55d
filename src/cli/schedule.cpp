// octavo schedule: the learning-rate curve as an SVG file and as numbers.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "chart/line_chart.h"
#include "chart/ticks.h"
#include "cli/verbs.h"
#include "optim/schedule.h"

namespace octavo::cli {
namespace {

// The steps at the corners of the curve and `count` spread between them, in order, each once.
std::vector<int64_t> chosen_steps(const optim::Schedule& schedule, int64_t count) {
  const int64_t last = schedule.max_steps - 1;
  std::vector<int64_t> steps = {0, std::min(schedule.warmup_steps, last), last};
  if (schedule.warmup_steps > 0) steps.push_back(schedule.warmup_steps - 1);
  // In floating point: step counts may be so large that a product would overflow.
  for (int64_t i = 1; i < count; ++i)
    steps.push_back(static_cast<int64_t>(static_cast<double>(last) * static_cast<double>(i) /
                                         static_cast<double>(count)));
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

// The corners of the curve, each with its numbers.
std::vector<chart::Mark> marks_of(const optim::Schedule& schedule) {
  const int64_t last = schedule.max_steps - 1, peak = std::min(schedule.warmup_steps, last);
  const auto mark = [&](int64_t step, const std::string& what) {
    const double rate = optim::learning_rate(step, schedule);
    return chart::Mark{static_cast<double>(step), rate,
                       str(what, ": ", chart::short_number(rate), " at step ", step)};
  };
  std::vector<chart::Mark> marks = {
      mark(peak, schedule.warmup_steps > 0 ? "warm-up ends, peak" : "peak")};
  if (last > peak) marks.push_back(mark(last, "minimum, the last step"));
  return marks;
}

std::string svg(const optim::Schedule& schedule) {
  chart::Series curve;
  for (int64_t step : chosen_steps(schedule, 400)) {
    curve.x.push_back(static_cast<double>(step));
    curve.y.push_back(optim::learning_rate(step, schedule));
  }
  chart::LineChart picture{"Learning rate by step", "step", "learning rate", false, false, {curve}};
  picture.marks = marks_of(schedule);
  return chart::svg(picture);
}

void print_table(const optim::Schedule& schedule, const std::string& picture) {
  std::printf("%12s  %-10s\n", "step", "learning rate");
  for (int64_t step : chosen_steps(schedule, 20)) {
    const double rate = optim::learning_rate(step, schedule);
    const int bar = schedule.max_lr > 0 ? static_cast<int>(40 * rate / schedule.max_lr + 0.5) : 0;
    std::printf("%12lld  %.3e  %s\n", static_cast<long long>(step), rate,
                std::string(bar, '#').c_str());
  }
  std::printf("warm-up %lld of %lld steps; %s\n", static_cast<long long>(schedule.warmup_steps),
              static_cast<long long>(schedule.max_steps),
              picture.empty() ? "as a picture: add --output schedule.svg"
                              : ("picture: " + picture).c_str());
}

void print_json(const optim::Schedule& schedule, const std::string& picture) {
  nlohmann::ordered_json out = {{"max_steps", schedule.max_steps},
                                {"warmup_steps", schedule.warmup_steps},
                                {"learning_rate", schedule.max_lr},
                                {"min_lr_ratio", schedule.min_lr_ratio}};
  if (!picture.empty()) out["picture"] = picture;
  for (int64_t step : chosen_steps(schedule, 20))
    out["points"].push_back(
        {{"step", step}, {"learning_rate", optim::learning_rate(step, schedule)}});
  std::cout << out.dump(2) << "\n";
}

}  // namespace

int schedule(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const config::Settings& settings = parsed.settings;
  if (settings.max_steps == 0)
    fail(ExitCode::kUsage, "cli",
         "schedule: wanted max_steps of at least 1, found 0; give --max_steps");
  for (const std::string& note : parsed.notes) log_info(note);
  const int64_t warmup = settings.warmup_steps < 0 ? optim::automatic_warmup(settings.max_steps)
                                                   : settings.warmup_steps;
  const optim::Schedule curve{settings.learning_rate, settings.min_lr_ratio, warmup,
                              settings.max_steps};
  if (!settings.output.empty()) write_file_atomic(settings.output, svg(curve));
  if (settings.json)
    print_json(curve, settings.output);
  else
    print_table(curve, settings.output);
  return 0;
}

}  // namespace octavo::cli

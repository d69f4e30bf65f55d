#include "run_report/run_contents.h"

#include <algorithm>

#include "base/error.h"
#include "base/lines.h"
#include "config/parse.h"
#include "run_report/json_values.h"

namespace octavo::run_report {
namespace {

constexpr size_t kStepBuckets = 1000, kEvaluationBuckets = 500, kMostEvents = 600;
constexpr size_t kMostSamples = 12, kLongestSample = 4000, kLongestText = 2000;
constexpr size_t kLargestConfig = size_t{1} << 20, kLongestLedgerLine = size_t{1} << 20;

// Calls `take` for every record of a ledger that may not be there; returns how many lines are none.
template <typename Take>
int64_t for_each_record(const fs::path& path, Take&& take) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return 0;
  int64_t bad = 0;
  bad += for_each_line(path, kLongestLedgerLine, [&](std::string_view line) {
    try {
      const Json record = parse_json(line, path.string(), {kLongestLedgerLine, 16});
      const auto step = step_in(record);
      if (step)
        take(*step, record);
      else
        ++bad;
    } catch (const Error&) {
      ++bad;
    }
  });
  return bad;
}

void remark_bad_lines(RunContents& run, const char* file, int64_t bad) {
  if (bad > 0)
    run.remarks.push_back(str(file, ": ", bad, " lines are no records and were left out"));
}

void read_config(RunContents& run) {
  const fs::path path = run.folder / "config.yaml";
  try {
    run.settings = config::parse_text(read_file(path, kLargestConfig), path.string(),
                                      {.verb = "report", .reader = config::reader::kReport})
                       .settings;
  } catch (const std::exception& error) {
    run.remarks.push_back(str("config.yaml cannot be used: ", error.what()));
  }
}

void add_fallbacks(RunContents& run) {
  for (const Json& fallback : array_in(object_in(run.receipt, "fp8"), "fallbacks"))
    if (const auto step = step_in(fallback))
      add_event(run, {"fallback", *step, "FP8 fallback",
                      text_in(fallback, "layer", kLongestText) + ": " +
                          text_in(fallback, "reason", kLongestText),
                      "moved to BF16"});
}

}  // namespace

RunContents::RunContents() : steps(kStepBuckets), evaluations(kEvaluationBuckets) {}

std::string RunContents::name() const {
  const fs::path plain = fs::absolute(folder).lexically_normal();
  return (plain.has_filename() ? plain : plain.parent_path()).filename().string();
}

std::string RunContents::status() const {
  return text_in(receipt, "status", kLongestText);
}

void add_event(RunContents& run, Event event) {
  if (run.events.size() < kMostEvents)
    run.events.push_back(std::move(event));
  else
    ++run.events_left_out;
}

void read_receipt(RunContents& run) {
  const fs::path path = run.folder / "receipt.json";
  try {
    Json receipt = read_json(path, {size_t{16} << 20, 32});
    if (!receipt.is_object())
      fail(ExitCode::kDamaged, "report", path.string(), ": wanted an object, found another value");
    run.receipt = std::move(receipt);
  } catch (const std::exception& error) {
    run.remarks.push_back(str(
        "receipt.json cannot be used, so state, device and GEMMs are not known: ", error.what()));
  }
}

void read_restarts(RunContents& run) {
  const int64_t bad =
      for_each_record(run.folder / "restarts.jsonl", [&](int64_t step, const Json& record) {
        ++run.restarts;
        std::string when = text_in(record, "time", 40);
        const std::string from = text_in(record, "from", kLongestText);
        std::string what = from.empty() ? "started again from the start" : "resumed from " + from;
        if (const std::string cause = text_in(record, "cause", kLongestText); !cause.empty())
          what += "; cause: " + cause;
        add_event(run, {"restart", step, "restart", std::move(what), std::move(when)});
      });
  remark_bad_lines(run, "restarts.jsonl", bad);
  // A run of a version that kept no such file tells of its last restart alone.
  const Json& resumed = object_in(run.receipt, "resumed");
  const auto step = step_in(resumed);
  if (run.restarts > 0 || !step) return;
  run.restarts = 1;
  add_event(run, {"restart", *step, "restart",
                  "resumed from " + text_in(resumed, "from", kLongestText), ""});
}

void read_incidents(RunContents& run) {
  const int64_t bad =
      for_each_record(run.folder / "incidents.jsonl", [&](int64_t step, const Json& record) {
        ++run.incidents;
        std::string what = text_in(record, "what", kLongestText);
        if (const std::string place = text_in(record, "place", kLongestText); !place.empty())
          what += "; first seen in " + place;
        if (const std::string cause = text_in(record, "cause", kLongestText); !cause.empty())
          what += str("; cause: ", cause, " (", text_in(record, "evidence", kLongestText), ")");
        add_event(run, {"incident", step, text_in(record, "kind", kLongestText), std::move(what),
                        text_in(record, "action", kLongestText)});
      });
  remark_bad_lines(run, "incidents.jsonl", bad);
}

RunContents read_contents(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / "metrics.jsonl", error) &&
      !fs::is_regular_file(folder / "receipt.json", error))
    fail(ExitCode::kUsage, "report", "wanted a run's folder with metrics.jsonl, found none in ",
         folder.string(), "; runs are in runs/<run_name>");
  RunContents run;
  run.folder = folder;
  read_receipt(run);
  read_restarts(run);
  read_metrics(run);
  read_incidents(run);
  add_fallbacks(run);
  std::ranges::stable_sort(run.events, {}, &Event::step);
  read_config(run);
  run.samples = read_samples(folder, kMostSamples, kLongestSample, run.remarks);
  run.tensors.narrow();
  return run;
}

}  // namespace octavo::run_report

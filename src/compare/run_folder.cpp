#include "compare/run_folder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/lines.h"
#include "config/parse.h"
#include "run_report/samples.h"

namespace octavo::compare {
namespace {

constexpr size_t kLongestRecord = size_t{16} << 20;  // FP8 statistics of a large model are long
constexpr size_t kMostSteps = 10'000'000;
constexpr int64_t kLastStep = int64_t{1} << 50;
constexpr size_t kLongestSample = size_t{1} << 20;

double number_in(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) && value > 0 ? value : 0;
}

int64_t count_in(const Json& record, const char* name) {
  return static_cast<int64_t>(std::min(number_in(record, name), 9e18));
}

std::optional<double> loss_in(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// False: it is no record of a run.
bool take_record(RunFolder& run, const Json& record) {
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return false;
  const int64_t step = record["step"].get<int64_t>();
  if (step < 0 || step > kLastStep) return false;
  if (record.contains("train/loss")) {
    if (run.steps.size() >= kMostSteps)
      fail(ExitCode::kUsage, "compare", run.folder.string(), "/metrics.jsonl: wanted at most ",
           kMostSteps, " steps, found more; cut the file to the part of interest");
    run.repeated_steps += run.steps.contains(step);
    run.steps[step] = {loss_in(record, "train/loss"), number_in(record, "perf/step_seconds"),
                       count_in(record, "tokens")};
    run.peak_bytes = std::max(run.peak_bytes, number_in(record, "memory/peak_bytes"));
    if (const auto found = record.find("precision"); found != record.end() && found->is_string())
      run.precision = found->get<std::string>().substr(0, 40);
    run.skipped_steps += record.contains("train/skipped");
  } else if (record.contains("val/loss")) {
    run.evaluations[step] = loss_in(record, "val/loss");
  } else if (record.contains("flag")) {
    ++run.flags;
  } else if (record.contains("eval/hellaswag_acc_norm")) {
    return true;  // of the run alone; compare asks both models the same rows (hellaswag.h)
  } else {
    return false;
  }
  return true;
}

// Records count tokens from the run's beginning; where steps are missing, the gap is shared evenly.
void count_step_tokens(RunFolder& run) {
  int64_t step_before = 0, tokens_before = 0;
  for (auto& [step, point] : run.steps) {
    if (step > step_before && point.tokens > tokens_before)
      point.step_tokens = static_cast<double>(point.tokens - tokens_before) /
                          static_cast<double>(step - step_before);
    step_before = step, tokens_before = point.tokens;
  }
}

void read_metrics(RunFolder& run) {
  const fs::path path = run.folder / "metrics.jsonl";
  const int64_t too_long = for_each_line(path, kLongestRecord, [&](std::string_view line) {
    try {
      run.bad_lines += !take_record(run, parse_json(line, path.string(), {kLongestRecord, 16}));
    } catch (const Error& error) {
      if (error.code() == ExitCode::kUsage) throw;
      ++run.bad_lines;
    }
  });
  run.bad_lines += too_long;
  for (const auto& [step, point] : run.steps) run.lost_losses += !point.loss;
  count_step_tokens(run);
  if (run.bad_lines > 0)
    run.remarks.push_back(
        str("metrics.jsonl: ", run.bad_lines, " lines are no records and were left out"));
  if (run.repeated_steps > 0)
    run.remarks.push_back(str("metrics.jsonl: ", run.repeated_steps,
                              " steps stand there more than once; the last of each counts"));
}

void read_receipt(RunFolder& run) {
  const fs::path path = run.folder / "receipt.json";
  try {
    const Json receipt = read_json(path);
    run.device = json_string(receipt, "device", path.string());
    run.status = json_string(receipt, "status", path.string());
    const bool several = receipt.contains("ranks") && receipt["ranks"].is_object();
    run.ranks = several ? json_int(receipt["ranks"], "ranks", path.string()) : 1;
    if (receipt.contains("fp8") && receipt["fp8"].is_object()) {
      run.fp8_share = loss_in(receipt["fp8"], "flops_share");
      if (const Json& fallbacks = receipt["fp8"].value("fallbacks", Json()); fallbacks.is_array())
        run.fp8_fallbacks = static_cast<int64_t>(fallbacks.size());
    }
  } catch (const std::exception& error) {
    run.remarks.push_back(
        str("receipt.json cannot be used, so the device is not known: ", error.what()));
  }
}

void read_settings(RunFolder& run) {
  const fs::path path = run.folder / "config.yaml";
  try {
    run.settings = config::parse_text(read_file(path, size_t{1} << 20), path.string(),
                                      {.verb = "compare", .reader = config::reader::kCompare})
                       .settings;
  } catch (const std::exception& error) {
    run.remarks.push_back(
        str("config.yaml cannot be used, so nothing tells whether the two runs "
            "saw the same data: ",
            error.what()));
  }
}

// The text of the last step that has one.
void read_sample(RunFolder& run) {
  const std::vector<int64_t> steps = run_report::sample_steps(run.folder);
  if (steps.empty()) return;
  try {
    run.sample =
        read_file(run.folder / "samples" / str("step-", steps.back(), ".txt"), kLongestSample);
    run.sample_step = steps.back();
  } catch (const std::exception& problem) {
    run.remarks.push_back(str("the last sample cannot be read: ", problem.what()));
  }
}

}  // namespace

std::string RunFolder::name() const {
  if (is_foreign()) return folder.string();  // many logs have the same file name
  const fs::path plain = folder.lexically_normal();
  return (plain.has_filename() ? plain : plain.parent_path()).filename().string();
}

std::string RunFolder::label() const {
  if (is_foreign()) return format;
  std::string text = precision.empty() ? "precision not said" : precision;
  if (settings && precision.starts_with("FP8")) {
    text += str(", ", config::name_of(config::fp8_recipe_of(*settings)));
    if (settings->fp8_margin != 0) text += str(", margin ", settings->fp8_margin);
  }
  return text;
}

bool is_run_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / "metrics.jsonl", error);
}

RunFolder read_foreign_run(const fs::path& path, const foreign_logs::Options& options,
                           bool same_batches) {
  foreign_logs::Log log = foreign_logs::read_log(path, options);
  RunFolder run;
  run.folder = path;
  run.format = log.format;
  run.same_batches = same_batches;
  for (const auto& [step, point] : log.steps)
    run.steps[step] = {.loss = point.loss,
                       .seconds = point.seconds,
                       .tokens = static_cast<int64_t>(std::min(point.tokens, 9e18)),
                       .tokens_per_second = point.tokens_per_second};
  count_step_tokens(run);
  run.evaluations = std::move(log.evaluations);
  run.rate_of_one_gpu = log.rate_of_one_gpu;
  run.peak_bytes = log.peak_bytes;
  run.bad_lines = log.bad_lines;
  run.repeated_steps = log.repeated_steps;
  run.lost_losses = log.lost_losses;
  run.skipped_steps = log.skipped_steps;
  run.remarks = std::move(log.remarks);
  run.remarks.insert(run.remarks.begin(),
                     str(log.format, ": ", run.steps.size(), " values of '", log.loss_name, "'",
                         log.val_loss_name.empty()
                             ? ", no validation loss"
                             : str(", ", run.evaluations.size(), " of '", log.val_loss_name, "'")));
  return run;
}

RunFolder read_run(const fs::path& folder) {
  if (!is_run_folder(folder))
    fail(ExitCode::kUsage, "compare", "wanted a run's folder with metrics.jsonl, found none in ",
         folder.string(), "; runs are in runs/<run_name>");
  RunFolder run;
  run.folder = folder;
  read_metrics(run);
  if (run.steps.empty())
    fail(ExitCode::kDamaged, "compare", folder.string(), "/metrics.jsonl: wanted steps of a run, ",
         "found none in it (", run.bad_lines, " lines are no records)");
  read_receipt(run);
  read_settings(run);
  read_sample(run);
  if (run.lost_losses > 0)
    run.remarks.push_back(str(run.lost_losses, " training losses are not finite"));
  if (run.skipped_steps > 0)
    run.remarks.push_back(
        str(run.skipped_steps, " steps were skipped because the gradient was not finite"));
  return run;
}

}  // namespace octavo::compare

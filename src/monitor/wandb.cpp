#include "monitor/wandb.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <random>

#include "base/error.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "monitor/log_format.h"
#include "monitor/metrics.h"
#include "monitor/record_file.h"
#include "monitor/wandb_live.h"
#include "monitor/wire.h"

namespace octavo::monitor {
namespace {

namespace record = wandb_record;
using wandb_item::kKey, wandb_item::kNestedKey, wandb_item::kValueJson;
constexpr int64_t kStepsPerSummary = 500;
constexpr std::chrono::seconds kPatience{60}, kShortPatience{10};
constexpr size_t kMostFolders = 10'000;

using SystemClock = std::chrono::system_clock;

// Python's words for what JSON has none for; wandb reads and writes them.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return Json(value).dump();
}

std::string new_run_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::string id;
  for (int i = 0; i < 8; ++i) id += kLetters[device() % kLetters.size()];
  return id;
}

// Of the newest offline run in the folder, or "".
std::string earlier_run_id(const fs::path& folder) {
  constexpr std::string_view kPrefix = "offline-run-";
  std::string newest;
  size_t seen = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (++seen > kMostFolders) break;
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.size() == kPrefix.size() + 15 + 1 + 8)
      newest = std::max(newest, name);
  }
  return newest.empty() ? "" : newest.substr(newest.size() - 8);
}

struct RunFiles {
  std::string id;
  fs::path folder, file;
};

RunFiles files_of_run(const WandbOptions& options, std::time_t now) {
  RunFiles files;
  if (options.last_step > 0) files.id = earlier_run_id(options.folder);
  if (files.id.empty()) files.id = new_run_id();
  files.folder =
      options.folder / str("offline-run-", utc_text("%Y%m%d_%H%M%S", now), "-", files.id);
  files.file = files.folder / str("run-", files.id, ".wandb");
  return files;
}

Message item(int key_field, std::string_view key, std::string_view value_json) {
  return Message().text(key_field, key).text(kValueJson, value_json);
}

class WandbSink final : public Sink {
 public:
  explicit WandbSink(const WandbOptions& options)
      : options_(options),
        start_(SystemClock::now()),
        files_(files_of_run(options, SystemClock::to_time_t(start_))),
        file_("the W&B run", files_.file) {
    if (options_.may_upload) live_ = WandbLive::when_possible(files_.folder);
    if (live_ == nullptr)
      log_info(str("W&B: offline run in ", files_.folder.string(), "; upload it with: wandb sync ",
                   files_.folder.string(), " (after wandb login, runs are uploaded as they grow)"));
  }

  void on_step(const StepRecord& r) override {
    begin_step(r.step);
    for (const Metric& metric : metrics_of(r)) add(metric.name, json_number(metric.value));
    for (const Histogram& h : histograms_of(r)) {
      const Json value = {{"_type", "histogram"}, {"bins", h.edges}, {"values", h.counts}};
      add(h.name, value.dump());
    }
    if (live_ != nullptr) live_->check_running();
  }

  void on_eval(const EvalRecord& r) override {
    begin_step(r.step);
    for (const Metric& metric : metrics_of(r)) add(metric.name, json_number(metric.value));
  }

  void on_task(const TaskRecord& r) override {
    begin_step(r.step);
    for (const Metric& metric : metrics_of(r)) add(metric.name, json_number(metric.value));
  }

  void on_sample(const SampleRecord& r) override {
    begin_step(r.step);
    add("samples", Json(valid_utf8(r.text)).dump());
  }

  void on_end(int exit_code) override {
    write_row();
    if (!last_.empty()) write_summary();
    write(record::kExit, Message().number(1, exit_code).number(2, static_cast<int64_t>(runtime())));
    // Who was told to stop has little time: schedulers kill after half a minute.
    const bool hurries = exit_code == static_cast<int>(ExitCode::kStopped);
    if (live_ != nullptr) live_->finish(hurries ? kShortPatience : kPatience);
  }

  int64_t failures() const override {
    return file_.failures() + (live_ != nullptr ? live_->failures() : 0);
  }
  std::string_view name() const override { return "wandb"; }

 private:
  double runtime() const {
    return std::chrono::duration<double>(SystemClock::now() - start_).count();
  }

  void write(int field, const Message& body) {
    std::string out;
    uint64_t at = file_.size();
    // Also after a disk that was full at the beginning: no record stands before the run's own.
    if (at == 0) {
      number_ = 0;
      for (const auto& [first_field, first] : first_records())
        out += wandb_log_bytes(numbered(first_field, first), at + out.size());
    }
    out += wandb_log_bytes(numbered(field, body), at + out.size());
    file_.append(out);
  }

  std::string numbered(int field, const Message& body) {
    return Message().number(record::kNumber, ++number_).message(field, body).bytes();
  }

  std::vector<std::pair<int, Message>> first_records() const {
    // min_consumer: what wandb's own writer says of this layout.
    const Message version = Message().text(1, "octavo").text(2, "0.70.0");
    Message config;
    for (const auto& [key, value] : options_.config) config.message(1, item(kKey, key, value));
    const auto since = start_.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    const Message time = Message()
                             .number(1, seconds.count())
                             .number(2, std::chrono::nanoseconds(since - seconds).count());
    Message run;
    run.text(1, files_.id).text(3, options_.project).message(4, config).text(8, options_.run_name);
    if (options_.last_step > 0) run.number(14, options_.last_step + 1).number(18, 1);
    run.message(17, time);
    return {{record::kHeader, Message().message(1, version)}, {record::kRun, run}};
  }

  // What is said of one step becomes one row; a row is written when the next begins.
  void begin_step(int64_t step) {
    if (step == step_) return;
    write_row();
    step_ = step;
  }

  void add(const std::string& key, const std::string& value_json) {
    row_.message(wandb_history::kItem, item(kNestedKey, key, value_json));
    last_[key] = value_json;
    has_row_ = true;
  }

  void write_row() {
    if (!has_row_) return;
    has_row_ = false;
    const double now = std::chrono::duration<double>(SystemClock::now().time_since_epoch()).count();
    add("_timestamp", json_number(now));
    add("_runtime", json_number(runtime()));
    add("_step", std::to_string(step_));
    row_.message(wandb_history::kStep, Message().number(wandb_history::kStepNumber, step_));
    has_row_ = false;
    write(record::kHistory, row_);
    row_ = Message();
    if (++rows_ % kStepsPerSummary == 0) write_summary();
  }

  void write_summary() {
    Message summary;
    for (const auto& [key, value] : last_) summary.message(1, item(kNestedKey, key, value));
    write(record::kSummary, summary);
  }

  WandbOptions options_;
  SystemClock::time_point start_;
  RunFiles files_;
  RecordFile file_;
  std::unique_ptr<WandbLive> live_;  // null: nothing is uploaded
  Message row_;
  bool has_row_ = false;
  std::map<std::string, std::string> last_;  // value of each key
  int64_t step_ = -1, rows_ = 0, number_ = 0;
};

}  // namespace

std::unique_ptr<Sink> make_wandb_sink(const WandbOptions& options) {
  return std::make_unique<WandbSink>(options);
}

}  // namespace octavo::monitor

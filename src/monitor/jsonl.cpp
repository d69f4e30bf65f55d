#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "monitor/metrics.h"
#include "monitor/record_file.h"
#include "monitor/sinks.h"

namespace octavo::monitor {
namespace {

// Keeps the lines of steps up to `last_step`; a line cut short by a crash is dropped too. Streams:
// the file may be long.
void drop_later_records(const fs::path& path, int64_t last_step) {
  std::ifstream in(path);
  if (!in) return;
  const fs::path temporary = path.string() + ".tmp";
  int64_t dropped = 0;
  bool whole = false;
  {
    std::ofstream out(temporary, std::ios::trunc);
    for (std::string line; std::getline(in, line);) {
      const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool keep = record.is_object() && record.contains("step") &&
                        record["step"].is_number_integer() &&
                        record["step"].get<int64_t>() <= last_step;
      if (keep)
        out << line << '\n';
      else
        ++dropped;
    }
    out.flush();
    whole = static_cast<bool>(out);
  }
  std::error_code error;
  if (whole && dropped > 0) fs::rename(temporary, path, error);
  if (!whole || error) {
    log_warn(str("metrics: records after step ", last_step, " cannot be dropped from ",
                 path.string(), "; it will have some steps twice"));
    return;
  }
  if (dropped == 0) fs::remove(temporary, error);
  if (dropped > 0)
    log_info(str("metrics: ", dropped, " records after step ", last_step, " dropped from ",
                 path.string(),
                 last_step > 0 ? "; the resumed run writes them again" : "; the run begins anew"));
}

// JSON has no infinity and no NaN.
Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json tensor_rows(const std::vector<Fp8Tensor>& tensors) {
  Json rows = Json::array();
  for (const Fp8Tensor& t : tensors) {
    const auto& h = t.health;
    rows.push_back({{"layer", t.layer},
                    {"tensor", t.tensor},
                    {"amax", number_or_null(h.amax)},
                    {"scale", number_or_null(h.factor)},
                    {"underflow_percent", h.underflowed_percent()},
                    {"saturation_percent", h.saturated_percent()},
                    {"sqnr_db", number_or_null(h.sqnr_db())},
                    {"nan", h.incidents.nan},
                    {"trouble", t.trouble}});
    if (t.channels.seen()) {
      rows.back()["channel"] = t.channels.worst;
      rows.back()["channel_ratio"] = number_or_null(t.channels.ratio());
    }
  }
  return rows;
}

class JsonlSink final : public Sink {
 public:
  JsonlSink(const fs::path& path, int64_t last_step) : file_("metrics", path) {
    drop_later_records(path, last_step);
  }

  void on_step(const StepRecord& r) override {
    Json record;
    for (const Metric& metric : metrics_of(r)) record[metric.name] = number_or_null(metric.value);
    // Counts are integers here, under the names that they always had.
    record.erase("train/epoch");
    record.erase("train/tokens");
    record["step"] = r.step;
    record["epoch"] = r.epoch;
    record["tokens"] = r.tokens;
    record["data/position"] = r.position;
    if (!r.samples.empty()) record["data/samples"] = r.samples;
    record["flags/total"] = r.flags;
    record["precision"] = r.precision;
    if (r.skipped) record["train/skipped"] = true;
    if (record.contains("fp8/layers")) {
      record["fp8/layers"] = r.fp8_layers;
      record["fp8/fallbacks"] = r.fp8_fallbacks;
    }
    if (!r.fp8_tensors.empty()) record["fp8/tensors"] = tensor_rows(r.fp8_tensors);
    write(record);
  }

  void on_eval(const EvalRecord& r) override {
    write({{"step", r.step},
           {"val/loss", number_or_null(r.val_loss)},
           {"val/tokens", r.tokens},
           {"val/best", r.best}});
  }

  void on_task(const TaskRecord& r) override {
    write({{"step", r.step},
           {"eval/hellaswag_acc_norm", number_or_null(r.acc_norm)},
           {"eval/hellaswag_acc", number_or_null(r.acc)},
           {"eval/hellaswag_rows", r.rows}});
  }

  void on_flag(const Flag& f) override {
    write({{"step", f.step}, {"flag", f.name}, {"seen", f.seen}, {"remedy", f.remedy}});
  }

  int64_t failures() const override { return file_.failures(); }
  std::string_view name() const override { return "jsonl"; }

 private:
  void write(const Json& record) { file_.append(record.dump() + "\n"); }

  RecordFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const fs::path& path, int64_t last_step) {
  return std::make_unique<JsonlSink>(path, last_step);
}

}  // namespace octavo::monitor

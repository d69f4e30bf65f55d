#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
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
  }
  fs::rename(temporary, path);
  if (dropped > 0)
    log_info(str("metrics: ", dropped, " records after step ", last_step, " dropped from ",
                 path.string(), "; the resumed run writes them again"));
}

// JSON has no infinity and no NaN.
Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// Every tensor, and the figures that are watched: the factors' geometric means over the tensors of
// the forward and of the backward pass, and the worst of the rest.
void add_fp8(Json& record, const std::vector<Fp8Tensor>& tensors) {
  double log_scale[2] = {}, count[2] = {}, amax = 0, underflow = 0, saturation = 0, sqnr = 200;
  Json rows = Json::array();
  for (const Fp8Tensor& t : tensors) {
    const auto& h = t.health;
    if (h.factor > 0 && std::isfinite(h.factor)) {
      log_scale[t.backward] += std::log(static_cast<double>(h.factor));
      count[t.backward] += 1;
    }
    amax = std::max(amax, static_cast<double>(h.amax));
    underflow = std::max(underflow, h.underflowed_percent());
    saturation = std::max(saturation, h.saturated_percent());
    sqnr = std::min(sqnr, h.sqnr_db());
    rows.push_back({{"layer", t.layer},
                    {"tensor", t.tensor},
                    {"amax", number_or_null(h.amax)},
                    {"scale", number_or_null(h.factor)},
                    {"underflow_percent", h.underflowed_percent()},
                    {"saturation_percent", h.saturated_percent()},
                    {"sqnr_db", number_or_null(h.sqnr_db())},
                    {"nan", h.incidents.nan},
                    {"trouble", t.trouble}});
  }
  if (count[0] > 0) record["fp8/fwd_scale"] = std::exp(log_scale[0] / count[0]);
  if (count[1] > 0) record["fp8/bwd_scale"] = std::exp(log_scale[1] / count[1]);
  record["fp8/amax"] = number_or_null(amax);
  record["fp8/underflow_percent"] = underflow;
  record["fp8/saturation_percent"] = saturation;
  record["fp8/sqnr_db"] = number_or_null(sqnr);
  record["fp8/tensors"] = std::move(rows);
}

class JsonlSink final : public Sink {
 public:
  JsonlSink(const fs::path& path, int64_t last_step) : path_(path) {
    drop_later_records(path, last_step);
    out_.open(path, std::ios::app);
    note_failure();
  }

  void on_step(const StepRecord& r) override {
    Json record = {{"step", r.step},
                   {"epoch", r.epoch},
                   {"train/loss", r.loss},
                   {"train/learning_rate", r.learning_rate},
                   {"train/grad_norm", r.grad_norm},
                   {"perf/step_seconds", r.seconds},
                   {"perf/tokens_per_second", r.tokens_per_second},
                   {"tokens", r.tokens},
                   {"data/wait", r.data_wait_seconds},
                   {"memory/peak_bytes", r.memory_peak_bytes},
                   {"precision", r.precision}};
    if (r.penalty != 0) record["train/penalty"] = r.penalty;
    if (r.skipped) record["train/skipped"] = true;
    if (r.fp8_layers > 0 || r.fp8_fallbacks > 0) {
      record["fp8/layers"] = r.fp8_layers;
      record["fp8/fallbacks"] = r.fp8_fallbacks;
    }
    if (!r.fp8_tensors.empty()) add_fp8(record, r.fp8_tensors);
    write(record);
  }

  void on_eval(const EvalRecord& r) override {
    write({{"step", r.step},
           {"val/loss", r.val_loss},
           {"val/tokens", r.tokens},
           {"val/best", r.best}});
  }

  int64_t failures() const override { return failures_; }

 private:
  void write(const Json& record) {
    out_ << record.dump() << '\n';
    out_.flush();
    note_failure();
  }
  void note_failure() {
    if (out_) return;
    if (failures_++ == 0)
      log_warn(
          str("metrics cannot be written to ", path_.string(), "; training goes on without them"));
    out_.clear();
  }

  fs::path path_;
  std::ofstream out_;
  int64_t failures_ = 0;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const fs::path& path, int64_t last_step) {
  return std::make_unique<JsonlSink>(path, last_step);
}

}  // namespace octavo::monitor

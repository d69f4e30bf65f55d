// A run's contents as the JSON that the page's script draws from.

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "config/key.h"
#include "fp8/health.h"
#include "run_report/encode.h"
#include "run_report/gemm_line.h"
#include "run_report/health.h"
#include "run_report/json_values.h"
#include "run_report/page.h"

namespace octavo::run_report {
namespace {

constexpr size_t kMostGemms = 5000, kMostGemmRows = 1500, kMostOperations = 200;
constexpr size_t kLongestCell = 400, kLongestReceipt = 60'000;

// Names in the page's script, in the order of StepField; "" is not drawn.
constexpr const char* kSeriesNames[] = {
    "loss",        "lr",      "grad",    "speed",    "seconds",  "wait",    "peak",
    "kept",        "mfu",     "slowest", "fwdScale", "bwdScale", "fullest", "emptiest",
    "idleExperts", "balance", "tokens",  "outside",  "skipped"};
static_assert(std::size(kSeriesNames) == static_cast<size_t>(StepField::kCount));

bool is_a_sum(StepField field) {  // over a bucket, where others have least, mean and most
  return field == StepField::kSeconds || field == StepField::kDataWait ||
         field == StepField::kOutside || field == StepField::kSkipped;
}

Json curve_of(const Buckets& buckets, size_t field, bool sums) {
  Json curve = {{"mean", Json::array()}};
  int64_t lost = 0;
  Json lost_at = Json::array();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const Cell cell = buckets.cell(field, i);
    curve["mean"].push_back(short_number(cell.count == 0 ? std::nan("")
                                         : sums          ? cell.sum
                                                         : cell.mean()));
    if (buckets.width() > 1 && !sums) {
      curve["min"].push_back(short_number(cell.least));
      curve["max"].push_back(short_number(cell.most));
    }
    lost += cell.lost;
    if (cell.lost > 0) lost_at.push_back({i, cell.lost});
  }
  if (lost > 0) curve["lost"] = lost_at;
  return curve;
}

Json axis_of(const Buckets& buckets) {
  Json axis = {
      {"width", buckets.width()}, {"records", buckets.records()}, {"first", Json::array()}};
  for (size_t i = 0; i < buckets.size(); ++i) {
    axis["first"].push_back(buckets.span(i).first);
    if (buckets.width() > 1) axis["last"].push_back(buckets.span(i).last);
  }
  return axis;
}

Json steps_data(const RunContents& run) {
  Json data = axis_of(run.steps);
  data["series"] = Json::object();
  for (size_t i = 0; i < std::size(kSeriesNames); ++i) {
    bool said = false;
    for (size_t bucket = 0; bucket < run.steps.size() && !said; ++bucket) {
      const Cell cell = run.steps.cell(i, bucket);
      said = cell.count + cell.lost > 0;
    }
    if (said)
      data["series"][kSeriesNames[i]] = curve_of(run.steps, i, is_a_sum(static_cast<StepField>(i)));
  }
  return data;
}

constexpr int16_t kNothing = -32768;

// Two bytes for each number: page.js has the inverse.
int16_t packed(TensorField field, double value) {
  if (!std::isfinite(value)) return kNothing;
  double scaled = value;
  switch (field) {
    case TensorField::kSqnr:
      scaled = value * 100;
      break;
    case TensorField::kUnderflow:
    case TensorField::kSaturation:  // fine where it is small: steps of 1e-7 percent near zero
      scaled = std::sqrt(std::clamp(value, 0.0, 100.0) / 100) * 32767;
      break;
    default:
      scaled = value * 200;
  }
  return static_cast<int16_t>(std::lround(std::clamp(scaled, -32767.0, 32767.0)));
}

// Row by row, least significant byte first.
std::string packed_matrix(const TensorHistory& tensors, TensorField field,
                          const std::function<double(const Cell&)>& value) {
  std::vector<uint8_t> bytes;
  for (size_t row = 0; row < tensors.rows().size(); ++row)
    for (size_t bucket = 0; bucket < tensors.buckets().size(); ++bucket) {
      const Cell cell = tensors.cell(row, field, bucket);
      const auto bits =
          static_cast<uint16_t>(packed(field, cell.count > 0 ? value(cell) : std::nan("")));
      bytes.push_back(static_cast<uint8_t>(bits & 0xFF));
      bytes.push_back(static_cast<uint8_t>(bits >> 8));
    }
  return base64(bytes);
}

Json tensors_data(const TensorHistory& tensors) {
  static constexpr const char* kNames[] = {"sqnr", "underflow", "saturation", "scale", "amax"};
  Json data = axis_of(tensors.buckets());
  data["rows"] = Json::array();
  for (const TensorRow& row : tensors.rows())
    data["rows"].push_back({{"layer", row.layer},
                            {"tensor", row.tensor},
                            {"troubles", row.troubles},
                            {"trouble", row.trouble},
                            {"troubleStep", row.trouble_step}});
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const auto field = static_cast<TensorField>(i);
    Json& matrix = data["fields"][kNames[i]];
    matrix["mean"] = packed_matrix(tensors, field, [](const Cell& c) { return c.mean(); });
    if (tensors.buckets().width() == 1) continue;
    matrix["min"] = packed_matrix(tensors, field, [](const Cell& c) { return c.least; });
    matrix["max"] = packed_matrix(tensors, field, [](const Cell& c) { return c.most; });
  }
  const fp8::Limits limits;
  data["limits"] = {{"sqnr", limits.sqnr_db},
                    {"underflow", limits.underflowed_percent},
                    {"saturation", limits.saturated_percent}};
  return data;
}

std::vector<GemmLine> gemms_in(const Json& receipt) {
  std::vector<GemmLine> lines;
  for (const Json& gemm : array_in(object_in(receipt, "fp8"), "gemms")) {
    if (lines.size() >= kMostGemms) break;
    if (!gemm.is_object()) continue;
    const auto count = [&](const char* name) {
      return static_cast<int64_t>(std::clamp(finite_in(gemm, name).value_or(0), 0.0, 9e15));
    };
    lines.push_back({text_in(gemm, "layer", kLongestCell), text_in(gemm, "gemm", kLongestCell),
                     text_in(gemm, "precision", kLongestCell),
                     text_in(gemm, "recipe", kLongestCell), text_in(gemm, "reason", kLongestCell),
                     finite_in(gemm, "flops_share").value_or(0), count("ran_fp8"),
                     count("ran_other"), std::max<int64_t>(1, count("layers"))});
  }
  return lines;
}

Json gemm_row(const std::string& name, const GemmLine& line) {
  return {name,         line.gemm,      line.precision, line.recipe, short_number(line.flops_share),
          line.ran_fp8, line.ran_other, line.reason};
}

Json operations_data(const Json& receipt) {
  Json rows = Json::array();
  for (const Json& operation : array_in(receipt, "operations")) {
    if (rows.size() >= kMostOperations) break;
    std::string refused;
    for (const Json& one : array_in(operation, "refused"))
      if (refused.size() < kLongestCell)
        refused += str(refused.empty() ? "" : "; ", text_in(one, "implementation", kLongestCell),
                       ": ", text_in(one, "reason", kLongestCell));
    rows.push_back(
        {text_in(operation, "op", kLongestCell), text_in(operation, "ran", kLongestCell), refused});
  }
  return rows;
}

Json receipt_data(const RunContents& run) {
  const std::vector<GemmLine> lines = gemms_in(run.receipt);
  Json groups = Json::array(), all = Json::array();
  for (const GemmGroup& group : grouped(lines))
    groups.push_back(gemm_row(group.name(), group.line));
  for (const GemmLine& line : lines)
    if (all.size() < kMostGemmRows)
      all.push_back(
          gemm_row(line.layers > 1 ? str(line.layer, " (", line.layers, ")") : line.layer, line));
  Json rest = run.receipt;
  rest.erase("operations");
  if (rest.contains("fp8") && rest["fp8"].is_object()) rest["fp8"].erase("gemms");
  std::string text = rest.dump(2, ' ', false, Json::error_handler_t::replace);
  const bool cut = text.size() > kLongestReceipt;
  if (cut) text.resize(kLongestReceipt);
  return {{"groups", groups},
          {"gemms", groups.size() == lines.size() ? Json::array() : all},
          {"gemmsTotal", lines.size()},
          {"operations", operations_data(run.receipt)},
          {"rest", cut ? text + "\n…" : text}};
}

// [key, value, default, section], those that differ from the defaults first told by "changed".
Json config_data(const RunContents& run) {
  Json data = {{"changed", Json::array()}, {"same", Json::array()}};
  if (!run.settings) return data;
  const config::Settings defaults;
  for (const config::Key& key : config::keys()) {
    std::string value = key.text(*run.settings), usual = key.text(defaults);
    const bool same = value == usual;
    const auto cut = [](std::string& text) {
      if (text.size() > kLongestCell) text = text.substr(0, kLongestCell) + "…";
    };
    cut(value);
    if (same)
      data["same"].push_back({key.name, value});
    else
      data["changed"].push_back({key.name, value, usual, key.help});
  }
  return data;
}

Json summary_data(const RunContents& run) {
  const Json& fp8 = object_in(run.receipt, "fp8");
  Json data = {{"status", run.status()},
               {"step", run.last_step},
               {"records", run.step_records},
               {"tokens", short_number(run.tokens)},
               {"speed", short_number(run.tokens_per_second)},
               {"skipped", run.skipped_steps},
               {"incidents", run.incidents},
               {"restarts", run.restarts},
               {"flags", run.flags},
               {"precision", run.precision},
               {"device", text_in(run.receipt, "device", 80)},
               {"fp8",
                {{"recipe", text_in(fp8, "recipe", 80)},
                 {"format", text_in(fp8, "format", 80)},
                 {"execution", text_in(fp8, "execution", 80)},
                 {"backend", text_in(fp8, "backend", 80)}}}};
  const auto add = [&](const char* name, std::optional<double> value) {
    if (value) data[name] = short_number(*value);
  };
  add("lastLoss", run.last_loss);
  add("fp8Share", finite_in(fp8, "flops_share"));
  add("parameters", finite_in(run.receipt, "parameters"));
  add("peakBytes", finite_in(run.receipt, "memory_peak_bytes"));
  add("threads", finite_in(run.receipt, "threads"));
  if (run.best) data["best"] = {{"loss", short_number(run.best->loss)}, {"step", run.best->step}};
  if (run.settings) {
    data["maxSteps"] = run.settings->max_steps;
    data["model"] = run.settings->model_name.substr(0, 200);
  }
  data["time"] = {{"useful", short_number(run.time.useful())},
                  {"wait", short_number(run.time.data_wait)},
                  {"skipped", short_number(run.time.skipped)},
                  {"outside", short_number(run.time.outside)}};
  return data;
}

}  // namespace

Json page_data(const RunContents& run) {
  Json data = {{"name", run.name()},
               {"summary", summary_data(run)},
               {"steps", steps_data(run)},
               {"receipt", receipt_data(run)},
               {"config", config_data(run)},
               {"remarks", run.remarks},
               {"eventsLeftOut", run.events_left_out},
               {"events", Json::array()},
               {"samples", Json::array()},
               {"findings", Json::array()}};
  data["evaluations"] = axis_of(run.evaluations);
  data["evaluations"]["series"]["val"] = curve_of(run.evaluations, 0, false);
  if (!run.tensors.rows().empty()) data["tensors"] = tensors_data(run.tensors);
  for (const Event& event : run.events)
    data["events"].push_back({{"type", event.type},
                              {"step", event.step},
                              {"name", event.name},
                              {"what", event.what},
                              {"action", event.action}});
  for (const Sample& sample : run.samples)
    data["samples"].push_back({{"step", sample.step}, {"text", sample.text}, {"cut", sample.cut}});
  const std::vector<Finding> findings = findings_of(run);
  data["level"] = name_of(worst_of(findings));
  for (const Finding& finding : findings)
    data["findings"].push_back({name_of(finding.level), finding.text, finding.section});
  return data;
}

}  // namespace octavo::run_report

#include "run_report/health.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "run_report/json_values.h"

namespace octavo::run_report {
namespace {

std::string counted(int64_t count, const char* one, const char* many) {
  return str(count, " ", count == 1 ? one : many);
}

void judge_end(const RunContents& run, std::vector<Finding>& findings) {
  const std::string status = run.status();
  if (status.starts_with("ended"))
    findings.push_back({Level::kBad, status, "events"});
  else if (status.empty())
    findings.push_back({Level::kLook, "the run's state is not known", "notes"});
  else if (status == "running")
    findings.push_back(
        {Level::kLook, "the run has not ended, or was killed before it could say so", "notes"});
  if (run.step_records == 0)
    findings.push_back({Level::kBad, "no step is recorded", "notes"});
  else if (!run.last_loss)
    findings.push_back({Level::kBad, "the last loss is not finite", "loss"});
  else if (run.lost_losses > 0)
    findings.push_back(
        {Level::kLook, counted(run.lost_losses, "loss is", "losses are") + " not finite", "loss"});
}

void judge_events(const RunContents& run, std::vector<Finding>& findings) {
  if (run.incidents > 0)
    findings.push_back({Level::kLook, counted(run.incidents, "incident", "incidents"), "events"});
  std::map<std::string, int64_t> flags;
  for (const Event& event : run.events)
    if (event.type == "flag") ++flags[event.name];
  for (const auto& [name, count] : flags) {
    const bool bad = name == "nan_loss" || name == "worse_than_uniform";
    findings.push_back({bad ? Level::kBad : Level::kLook,
                        "red flag " + name + (count > 1 ? str(" (", count, " times)") : ""),
                        "events"});
  }
}

void judge_fp8(const RunContents& run, std::vector<Finding>& findings) {
  const Json& fp8 = object_in(run.receipt, "fp8");
  if (const auto& fallbacks = array_in(fp8, "fallbacks"); !fallbacks.empty())
    findings.push_back(
        {Level::kLook,
         counted(static_cast<int64_t>(fallbacks.size()), "layer was", "layers were") +
             " moved from FP8 to BF16",
         "events"});
  const auto share = finite_in(fp8, "flops_share");
  if (run.settings && run.settings->mixed_precision == config::Precision::kFp8 &&
      share.value_or(1) <= 0)
    findings.push_back({Level::kBad, "FP8 was asked for and no GEMM ran in it", "receipt"});
  const auto troubled = std::ranges::count_if(run.tensors.rows(), [&](const TensorRow& row) {
    return row.trouble_step >= 0 && row.trouble_step == run.tensors.last_step();
  });
  if (troubled > 0)
    findings.push_back(
        {Level::kLook,
         counted(troubled, "FP8 tensor is", "FP8 tensors are") + " in trouble at the last look",
         "fp8"});
}

}  // namespace

const char* name_of(Level level) {
  static constexpr const char* kNames[] = {"good", "look", "bad"};
  return kNames[static_cast<size_t>(level)];
}

std::vector<Finding> findings_of(const RunContents& run) {
  std::vector<Finding> findings;
  judge_end(run, findings);
  judge_events(run, findings);
  judge_fp8(run, findings);
  if (const auto dropped = finite_in(object_in(run.receipt, "sinks"), "dropped");
      dropped.value_or(0) > 0)
    findings.push_back({Level::kLook, "the queue of records was full and dropped some", "receipt"});
  std::ranges::stable_sort(findings, std::ranges::greater{}, &Finding::level);
  return findings;
}

Level worst_of(const std::vector<Finding>& findings) {
  return findings.empty() ? Level::kGood : findings.front().level;
}

}  // namespace octavo::run_report

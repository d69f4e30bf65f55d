// The comparison for other programs.

#include <nlohmann/json.hpp>

#include "compare/comparison.h"

namespace octavo::compare {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson interval_json(const Interval& interval) {
  return {{"mean", interval.mean},
          {"low", interval.low},
          {"high", interval.high},
          {"effective", interval.effective}};
}

OrderedJson gap_json(const std::optional<Gap>& gap, const std::string& reason) {
  if (!gap) return {{"missing", reason}};
  OrderedJson out = {{"a", gap->a}, {"b", gap->b}, {"interval", interval_json(gap->interval)}};
  if (gap->open) out["missing"] = "an interval";
  return out;
}

OrderedJson run_json(const RunFolder& run) {
  OrderedJson out = {{"folder", run.folder.string()},
                     {"format", run.is_foreign() ? run.format : "octavo"},
                     {"precision", run.precision},
                     {"device", run.device},
                     {"status", run.status},
                     {"steps", run.steps.size()},
                     {"evaluations", run.evaluations.size()},
                     {"peak_bytes", run.peak_bytes},
                     {"bad_lines", run.bad_lines},
                     {"repeated_steps", run.repeated_steps},
                     {"losses_not_finite", run.lost_losses},
                     {"skipped_steps", run.skipped_steps},
                     {"flags", run.flags}};
  if (run.fp8_share) out["fp8_flops_share"] = *run.fp8_share;
  if (run.settings) out["seed"] = run.settings->seed;
  return out;
}

OrderedJson pair_json(const Pair& pair) {
  OrderedJson out = {{"a", run_json(*pair.a)},
                     {"b", run_json(*pair.b)},
                     {"steps", pair.pairing.steps.size()},
                     {"same_batches", pair.pairing.same_batches},
                     {"comparable", pair.pairing.comparable}};
  out["differences"] = OrderedJson::object();
  for (const Difference& d : pair.pairing.differences) out["differences"][d.key] = {d.a, d.b};
  out["tail"] = {{"steps", pair.tail_steps}, {"from", pair.tail_from}};
  out["train_gap_percent"] = gap_json(pair.train, pair.no_train);
  out["val_gap_percent"] = gap_json(pair.validation, pair.no_validation);
  out["speedup"] = gap_json(pair.speed, pair.no_speed);
  if (pair.task)
    out["hellaswag"] = {
        {"a", pair.task->a}, {"b", pair.task->b}, {"rows", pair.task->differences.size()}};
  return out;
}

}  // namespace

OrderedJson json_of(const Comparison& c, const Bounds& bounds) {
  OrderedJson out = {{"verdict", name_of(c.verdict)},
                     {"a", c.label_a},
                     {"b", c.label_b},
                     {"on_cpu", c.on_cpu},
                     {"bounds",
                      {{"max_train_gap", bounds.train_gap},
                       {"max_val_gap", bounds.validation_gap},
                       {"max_hellaswag_drop", bounds.hellaswag_drop},
                       {"min_speedup", bounds.speedup},
                       {"max_memory_gap", bounds.memory_gap},
                       {"tail_share", bounds.tail_share}}}};
  for (const Judgement& line : c.judgements) {
    OrderedJson row = {{"name", line.name},    {"a", line.a},
                       {"b", line.b},          {"gap", line.gap},
                       {"wanted", line.bound}, {"verdict", name_of(line.verdict)},
                       {"why", line.why},      {"counts", line.counts}};
    if (line.interval) row["interval"] = interval_json(*line.interval);
    if (line.seeds_wanted > 0) row["seeds_wanted"] = line.seeds_wanted;
    out["judgements"].push_back(row);
  }
  for (const Pair& pair : c.pairs) out["pairs"].push_back(pair_json(pair));
  out["notes"] = c.remarks;
  return out;
}

}  // namespace octavo::compare

#include "train/reporting/receipt.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/heartbeat.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/allocator.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/instruction_set.h"
#include "train/batching/auto_batch.h"
#include "train/guards/replica_check.h"
#include "train/lora_run.h"
#include "train/reporting/fp8_report.h"
#include "train/reporting/restart_ledger.h"
#include "train/state/mixture_order.h"

namespace octavo::train {

namespace {

Json resumed_receipt(const Resumed& r) {
  if (r.from.empty()) return {};
  return {{"from", r.from},
          {"step", r.step},
          {"fallbacks", r.passed_over.size()},
          {"passed_over", r.passed_over}};
}

Json incidents_receipt(const config::Settings& settings, const Progress& progress,
                       const std::vector<Incident>& incidents) {
  Json json = {{"policy", config::name_of(settings.bad_steps)},
               {"budget", settings.bad_step_budget},
               {"refused_steps", progress.bad_step_skips},
               {"rollbacks", progress.rollbacks},
               {"since_start", incidents.size()}};
  if (!incidents.empty()) json["last"] = incidents.back().json();
  return json;
}

// Of the first rank.
Json data_receipt(const Run& run) {
  const DataState& data = run.data;
  const auto of = [](const data::TokenData& split) {
    return Json{{"damaged_ranges", split.damage().size()},
                {"check_seconds", split.check_seconds()}};
  };
  Json json = {{"damage", config::name_of(run.settings.data_damage)},
               {"samples_left_out", data.samples_left_out},
               {"train", of(*data.train)}};
  if (data.val != nullptr) json["val"] = of(*data.val);
  if (const data::MixedTokens* mixed = data.train->mixed(); mixed != nullptr)
    json["sources"] = sources_receipt(*mixed, run.progress.position, run.settings.max_seq_length);
  return json;
}

// Of the steps that were made before: a start that makes none knows nothing of them.
void keep_what_ran(Json& receipt, const fs::path& path) {
  if (!fs::exists(path)) return;
  try {
    const Json before = read_json(path);
    if (before.value("run_id", Json()) != receipt.at("run_id")) return;
    for (const char* name :
         {"precision", "device", "threads", "instruction_sets", "operations", "fp8", "lora",
          "cuda_graph", "sharding", "memory_peak_bytes", "incidents", "flags"})
      if (before.contains(name)) receipt[name] = before.at(name);
    for (const char* name : {"checkpoints", "uploads"})  // this start may make some, too
      if (receipt.at(name).is_null() && before.contains(name)) receipt[name] = before.at(name);
  } catch (const std::exception& error) {
    log_warn(str("receipt.json of the steps before cannot be read (", error.what(),
                 "): the new one has none of what they ran"));
  }
}

}  // namespace

void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   int64_t steps, const Json& sinks, const Json& flags) {
  const int64_t length = run.settings.max_seq_length;
  Json operations = Json::array();
  for (const auto& choice : run.trained.engine->choices) {
    Json refused = Json::array();
    for (const auto& r : choice.refused)
      refused.push_back({{"implementation", r.implementation}, {"reason", r.reason}});
    operations.push_back({{"op", choice.op}, {"ran", choice.implementation}, {"refused", refused}});
  }
  Json receipt = {
      {"status", status},
      {"run_id", run.claim.run_id},
      {"precision", run.trained.precision()},
      {"device", run.trained.device().str()},
      {"threads", at::get_num_threads()},
      {"instruction_sets",
       {{"kernels", engine::cpu::kernel_instruction_set()},
        {"gemms", engine::cpu::gemm_instruction_set()}}},
      {"parameters", models::parameter_count(*run.trained.model)},
      {"flops_per_token", flops_per_token(run.trained, length)},
      {"optimizer",
       {{"bytes_per_parameter", run.trained.optimizer->bytes_per_parameter()},
        {"master_dtype", config::name_of(run.settings.master_dtype)},
        {"moment_dtype", config::name_of(run.settings.moment_dtype)},
        {"gradient_dtype", config::name_of(run.settings.gradient_dtype)}}},
      {"batching", batching_receipt(run.settings, run.batching, run.world.size())},
      {"ranks", run.world.receipt()},
      {"sharding", run.trained.sharding != nullptr ? run.trained.sharding->receipt() : Json()},
      {"replicas", replicas_receipt(run.guards)},
      {"operations", operations},
      {"fp8", fp8_receipt(run.trained, length)},
      {"lora", lora_receipt(run.trained, length)},
      {"cuda_graph", run.trained.graph != nullptr ? run.trained.graph->receipt() : Json()},
      {"resumed", resumed_receipt(run.resumed)},
      {"restarts", restarts_receipt(run_dir)},
      {"data", data_receipt(run)},
      {"checkpoints", run.saver != nullptr ? run.saver->receipt() : Json()},
      {"uploads", run.uploader != nullptr ? run.uploader->receipt() : Json()},
      {"sinks", sinks},
      {"flags", flags},
      {"steps", run.progress.step},
      {"skipped_steps", run.progress.skipped_steps},
      {"incidents", incidents_receipt(run.settings, run.progress, run.guards.incidents)},
      {"tokens", run.progress.tokens},
      {"memory_peak_bytes", engine::memory_of(run.trained.device()).peak},
      {"hang_watch",
       {{"timeout_seconds", run.settings.hang_timeout},
        {"notices", heartbeat::beats().notices.load()}}},
      {"warnings", warning_count()}};
  const fs::path path = run_dir / "receipt.json";
  if (steps == 0 && !run.resumed.from.empty()) keep_what_ran(receipt, path);
  write_file_atomic(path, receipt.dump(2) + "\n");
}

}  // namespace octavo::train

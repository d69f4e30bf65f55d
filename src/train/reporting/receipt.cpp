#include "train/reporting/receipt.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/json.h"
#include "base/log.h"
#include "engine/allocator.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/instruction_set.h"
#include "train/batching/auto_batch.h"
#include "train/guards/replica_check.h"
#include "train/lora_run.h"
#include "train/reporting/fp8_report.h"

namespace octavo::train {

namespace {

Json resumed_receipt(const Run& run) {
  const Resumed& r = run.resumed;
  if (r.from.empty()) return {};
  return {{"from", r.from},
          {"step", r.step},
          {"fallbacks", r.passed_over.size()},
          {"passed_over", r.passed_over}};
}

Json incidents_receipt(const Run& run) {
  Json json = {{"policy", config::name_of(run.settings.bad_steps)},
               {"budget", run.settings.bad_step_budget},
               {"refused_steps", run.progress.bad_step_skips},
               {"rollbacks", run.progress.rollbacks},
               {"since_start", run.incidents.size()}};
  if (!run.incidents.empty()) json["last"] = run.incidents.back().json();
  return json;
}

// Of the first rank.
Json data_receipt(const Run& run) {
  const auto of = [](const data::TokenData& data) {
    return Json{{"damaged_ranges", data.damage().size()}, {"check_seconds", data.check_seconds()}};
  };
  Json json = {{"damage", config::name_of(run.settings.data_damage)},
               {"samples_left_out", run.samples_left_out},
               {"train", of(*run.train_data)}};
  if (run.val_data != nullptr) json["val"] = of(*run.val_data);
  return json;
}

}  // namespace

void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   const Json& sinks, const Json& flags) {
  Json operations = Json::array();
  for (const auto& choice : run.engine->choices) {
    Json refused = Json::array();
    for (const auto& r : choice.refused)
      refused.push_back({{"implementation", r.implementation}, {"reason", r.reason}});
    operations.push_back({{"op", choice.op}, {"ran", choice.implementation}, {"refused", refused}});
  }
  const Json receipt = {{"status", status},
                        {"run_id", run.claim.run_id},
                        {"precision", run.precision()},
                        {"device", run.engine->target.device.str()},
                        {"threads", at::get_num_threads()},
                        {"instruction_sets",
                         {{"kernels", engine::cpu::kernel_instruction_set()},
                          {"gemms", engine::cpu::gemm_instruction_set()}}},
                        {"parameters", models::parameter_count(*run.model)},
                        {"flops_per_token", flops_per_token(run)},
                        {"optimizer",
                         {{"bytes_per_parameter", run.optimizer->bytes_per_parameter()},
                          {"master_dtype", config::name_of(run.settings.master_dtype)},
                          {"moment_dtype", config::name_of(run.settings.moment_dtype)},
                          {"gradient_dtype", config::name_of(run.settings.gradient_dtype)}}},
                        {"batching", batching_receipt(run)},
                        {"ranks", run.world.receipt()},
                        {"sharding", run.sharding != nullptr ? run.sharding->receipt() : Json()},
                        {"replicas", replicas_receipt(run)},
                        {"operations", operations},
                        {"fp8", fp8_receipt(run)},
                        {"lora", lora_receipt(run)},
                        {"cuda_graph", run.graph != nullptr ? run.graph->receipt() : Json()},
                        {"resumed", resumed_receipt(run)},
                        {"data", data_receipt(run)},
                        {"checkpoints", run.saver != nullptr ? run.saver->receipt() : Json()},
                        {"sinks", sinks},
                        {"flags", flags},
                        {"steps", run.progress.step},
                        {"skipped_steps", run.progress.skipped_steps},
                        {"incidents", incidents_receipt(run)},
                        {"tokens", run.progress.tokens},
                        {"memory_peak_bytes", engine::memory_of(run.engine->target.device).peak},
                        {"warnings", warning_count()}};
  write_file_atomic(run_dir / "receipt.json", receipt.dump(2) + "\n");
}

}  // namespace octavo::train

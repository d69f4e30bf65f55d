#include "train/receipt.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/json.h"
#include "base/log.h"
#include "engine/allocator.h"
#include "train/auto_batch.h"
#include "train/fp8_report.h"
#include "train/lora_run.h"

namespace octavo::train {

void write_receipt(const Run& run, const fs::path& run_dir, const std::string& status,
                   const Json& sinks) {
  Json operations = Json::array();
  for (const auto& choice : run.engine->choices) {
    Json refused = Json::array();
    for (const auto& r : choice.refused)
      refused.push_back({{"implementation", r.implementation}, {"reason", r.reason}});
    operations.push_back({{"op", choice.op}, {"ran", choice.implementation}, {"refused", refused}});
  }
  const Json receipt = {{"status", status},
                        {"precision", run.precision()},
                        {"device", run.engine->target.device.str()},
                        {"threads", at::get_num_threads()},
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
                        {"operations", operations},
                        {"fp8", fp8_receipt(run)},
                        {"lora", lora_receipt(run)},
                        {"cuda_graph", run.graph != nullptr ? run.graph->receipt() : Json()},
                        {"checkpoints", run.saver != nullptr ? run.saver->receipt() : Json()},
                        {"sinks", sinks},
                        {"steps", run.progress.step},
                        {"skipped_steps", run.progress.skipped_steps},
                        {"tokens", run.progress.tokens},
                        {"memory_peak_bytes", engine::memory_of(run.engine->target.device).peak},
                        {"warnings", warning_count()}};
  write_file_atomic(run_dir / "receipt.json", receipt.dump(2) + "\n");
}

}  // namespace octavo::train

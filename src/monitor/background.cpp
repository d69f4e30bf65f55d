#include "monitor/background.h"

#include "base/log.h"
#include "config/key.h"
#include "monitor/prometheus.h"
#include "monitor/tensorboard.h"
#include "monitor/wandb.h"
#include "monitor/wandb_login.h"

namespace octavo::monitor {
namespace {

std::string json_value(const config::Key& key, const config::Settings& settings) {
  const std::vector<std::string> values = key.load(settings);
  switch (key.type) {
    case config::Type::kList:
      return Json(values).dump();
    case config::Type::kInt:
    case config::Type::kReal:
    case config::Type::kBool:
      return values.front();
    case config::Type::kText:
    case config::Type::kEnum:
      break;
  }
  return Json(values.front()).dump();
}

WandbOptions wandb_options(const config::Settings& settings, const fs::path& run_dir,
                           int64_t last_step) {
  WandbOptions options{
      .folder = run_dir / "wandb",
      .project = settings.wandb_project,
      .run_name = settings.wandb_run_name.empty() ? settings.run_name : settings.wandb_run_name,
      .config = {},
      .last_step = last_step};
  for (const config::Key& key : config::keys())
    if ((key.readers & config::reader::kTrain) != 0)
      options.config.emplace_back(key.name, json_value(key, settings));
  return options;
}

}  // namespace

std::unique_ptr<AsyncSink> open_background_sinks(const config::Settings& settings,
                                                 const fs::path& run_dir, int64_t last_step,
                                                 const Peaks& peaks) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(make_jsonl_sink(run_dir / "metrics.jsonl", last_step));
  sinks.push_back(make_samples_sink(run_dir / "samples"));
  if (settings.use_tensorboard)
    sinks.push_back(make_tensorboard_sink(run_dir / "tensorboard", last_step));
  const bool has_wandb = settings.use_wandb && wandb_mode() != WandbMode::kDisabled;
  if (has_wandb)
    sinks.push_back(make_wandb_sink(wandb_options(settings, run_dir, last_step)));
  else if (settings.use_wandb)
    log_info("W&B: off, and no folder of it is made: WANDB_MODE is disabled");
  if (!settings.metrics_address.empty())
    sinks.push_back(make_prometheus_sink(settings.metrics_address, settings.run_name));
  AsyncSink::Limits limits;
  if (has_wandb) limits.seconds_to_end += 60;  // wandb may have something to upload
  return std::make_unique<AsyncSink>(std::move(sinks), peaks, limits);
}

std::unique_ptr<AsyncSink> open_console(int64_t first_step, int64_t max_steps, int64_t log_freq) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(make_console_sink(first_step, max_steps, log_freq));
  return std::make_unique<AsyncSink>(std::move(sinks), Peaks{},
                                     AsyncSink::Limits{.seconds_to_end = 2,
                                                       .what = "step lines",
                                                       .thread = "octavo-console",
                                                       .reads_gpus = false});
}

}  // namespace octavo::monitor

#include "config/task.h"

#include "base/file.h"
#include "model_config/presets.h"

namespace octavo::config {
namespace {

// A folder that has a config.json alone gives its shape, and random weights.
bool is_shape_alone(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "config.json", error) &&
         !fs::exists(folder / "model.safetensors", error) &&
         !fs::exists(folder / "model.safetensors.index.json", error);
}

}  // namespace

Task task_of(const Settings& settings) {
  if (settings.lora_rank > 0) return Task::kLora;
  if (settings.init_from == "random") return Task::kPretraining;
  if (!settings.init_from.empty()) return Task::kFineTuning;
  if (model_config::is_built_in(settings.model_name) || is_shape_alone(settings.model_name))
    return Task::kPretraining;
  return Task::kFineTuning;
}

std::string_view name_of(Task task) {
  switch (task) {
    case Task::kPretraining:
      return "pretraining";
    case Task::kFineTuning:
      return "full fine-tuning";
    case Task::kLora:
      break;
  }
  return "LoRA";
}

double default_learning_rate(Task task) {
  switch (task) {
    case Task::kPretraining:
      return Settings{}.learning_rate;
    case Task::kFineTuning:
      return 1e-5;
    case Task::kLora:
      break;
  }
  return 2e-4;
}

}  // namespace octavo::config

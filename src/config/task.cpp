#include "config/task.h"

#include <algorithm>

#include "base/file.h"

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

bool is_built_in_model(std::string_view model_name) {
  constexpr std::string_view kNames[] = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "custom"};
  return std::ranges::find(kNames, model_name) != std::end(kNames);
}

Task task_of(const Settings& settings) {
  if (settings.lora_rank > 0) return Task::kLora;
  if (settings.init_from == "random") return Task::kPretraining;
  if (!settings.init_from.empty()) return Task::kFineTuning;
  if (is_built_in_model(settings.model_name) || is_shape_alone(settings.model_name))
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

#pragma once
// What a run trains: the defaults that differ between pretraining and fine-tuning come from it.

#include <string>
#include <string_view>

#include "config/settings.h"

namespace octavo::config {

enum class Task { kPretraining, kFineTuning, kLora };

// From the settings and the model's folder alone; nothing is downloaded. A name on the hub counts
// as a model with weights.
Task task_of(const Settings& settings);
std::string_view name_of(Task task);  // "pretraining", "full fine-tuning", "LoRA"

// What learning_rate is when it is not given; docs/reference/hyperparameters.md has the reasons.
double default_learning_rate(Task task);

}  // namespace octavo::config

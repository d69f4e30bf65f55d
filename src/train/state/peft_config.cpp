#include "train/state/peft_config.h"

#include <cmath>

#include "base/error.h"

namespace octavo::train {
namespace {

double number(const Json& config, const char* name, const std::string& source) {
  if (!config.contains(name) || !config.at(name).is_number())
    fail(ExitCode::kDamaged, "train", source, ": '", name, "' wanted as a number");
  return config.at(name).get<double>();
}

// A field that would change what the adapters compute and is not implemented.
void refuse_unless(const Json& config, const char* name, const std::vector<Json>& implemented,
                   const std::string& source) {
  if (!config.contains(name)) return;
  for (const Json& value : implemented)
    if (config.at(name) == value) return;
  fail(ExitCode::kUsage, "train", source, ": '", name, "': ", config.at(name).dump().substr(0, 80),
       " is not implemented; plain LoRA adapters are");
}

bool flag(const Json& config, const char* name, const std::string& source) {
  if (!config.contains(name) || config.at(name).is_null()) return false;
  return json_field(config, name, Json::value_t::boolean, source).get<bool>();
}

}  // namespace

nn::LoraOptions parse_peft_config(const Json& config, const std::string& source) {
  refuse_unless(config, "peft_type", {"LORA"}, source);
  refuse_unless(config, "bias", {"none"}, source);
  refuse_unless(config, "use_dora", {false, nullptr}, source);
  refuse_unless(config, "modules_to_save", {nullptr, Json::array()}, source);
  refuse_unless(config, "rank_pattern", {nullptr, Json::object()}, source);
  refuse_unless(config, "alpha_pattern", {nullptr, Json::object()}, source);
  refuse_unless(config, "layers_to_transform", {nullptr}, source);
  refuse_unless(config, "lora_bias", {false, nullptr}, source);
  refuse_unless(config, "layer_replication", {nullptr}, source);
  refuse_unless(config, "use_qalora", {false, nullptr}, source);
  refuse_unless(config, "alora_invocation_tokens", {nullptr}, source);
  refuse_unless(config, "trainable_token_indices", {nullptr}, source);
  nn::LoraOptions options;
  options.rank = json_int(config, "r", source);
  if (options.rank < 1 || options.rank > 65536)
    fail(ExitCode::kDamaged, "train", source, ": 'r' wanted in 1..65536, found ", options.rank);
  options.alpha = number(config, "lora_alpha", source);
  if (flag(config, "use_rslora", source))  // scale alpha / sqrt(r) instead of alpha / r
    options.alpha *= std::sqrt(static_cast<double>(options.rank));
  const Json& targets = config.contains("target_modules") ? config.at("target_modules") : Json();
  if (targets.is_string()) options.targets = {targets.get<std::string>()};
  if (targets.is_array())
    for (const Json& t : targets)
      options.targets.push_back(t.is_string() ? t.get<std::string>() : t.dump());
  if (options.targets.empty())
    fail(ExitCode::kDamaged, "train", source,
         ": 'target_modules' wanted as names of modules, found ", targets.dump().substr(0, 80));
  return options;
}

}  // namespace octavo::train

// PEFT's files: adapter_config.json and adapter_model.safetensors, whose tensors are named
// base_model.model.<module>.lora_A.weight.

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "train/lora_run.h"

namespace octavo::train {
namespace {

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kTensorsName = "adapter_model.safetensors";
constexpr const char* kPrefix = "base_model.model.";

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
  fail(ExitCode::kUsage, "train", source, ": '", name, "': ", config.at(name).dump(),
       " is not implemented; plain LoRA adapters are");
}

nn::LoraOptions read_options(const Json& config, const std::string& source) {
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
  if (config.value("use_rslora", false))  // scale alpha / sqrt(r) instead of alpha / r
    options.alpha *= std::sqrt(static_cast<double>(options.rank));
  const Json& targets = config.contains("target_modules") ? config.at("target_modules") : Json();
  if (targets.is_string()) options.targets = {targets.get<std::string>()};
  if (targets.is_array())
    for (const Json& t : targets)
      options.targets.push_back(t.is_string() ? t.get<std::string>() : t.dump());
  if (options.targets.empty())
    fail(ExitCode::kDamaged, "train", source,
         ": 'target_modules' wanted as names of modules, found ", targets.dump());
  return options;
}

}  // namespace

bool is_peft_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfigName, error);
}

std::string peft_base(const fs::path& folder) {
  const fs::path file = folder / kConfigName;
  return json_string(read_json(file), "base_model_name_or_path", file.string());
}

void write_peft(const nn::Lora& lora, const models::Model& model, const std::string& base,
                const fs::path& folder) {
  std::set<std::string> targets;
  for (const auto& module : lora.modules()) targets.insert(nn::last_part(module));
  const nn::LoraOptions& o = lora.options();
  const bool is_gpt2 = model.hugging_face_config().at("model_type") == "gpt2";
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", o.rank},
                       {"lora_alpha", o.alpha},
                       {"lora_dropout", o.dropout},
                       {"target_modules", targets},
                       {"bias", "none"},
                       {"fan_in_fan_out", is_gpt2},  // Conv1D keeps [in, out]
                       {"inference_mode", true}};
  checkpoint::NamedTensors tensors;
  for (const auto& p : lora.params()) tensors.emplace_back(kPrefix + p->name, p->master);
  fs::create_directories(folder);
  checkpoint::write_safetensors(folder / kTensorsName, tensors, {{"format", "pt"}});
  write_file_atomic(folder / kConfigName, config.dump(2) + "\n");
}

std::unique_ptr<nn::Lora> read_peft(const engine::Engine& engine, const models::Model& model,
                                    const fs::path& folder) {
  const at::NoGradGuard no_grad;
  const std::string source = (folder / kConfigName).string();
  const nn::LoraOptions options = read_options(read_json(folder / kConfigName), source);
  auto lora = std::make_unique<nn::Lora>(engine, lora_layers(model), options);
  const checkpoint::SafetensorsReader file(folder / kTensorsName);
  for (const auto& p : lora->params()) {
    const std::string name = kPrefix + p->name;
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end() || at::IntArrayRef(found->second.shape) != p->master.sizes())
      fail(ExitCode::kDamaged, "train", file.path().string(), ": tensor '", name,
           "': wanted shape ", p->master.sizes(), ", found ",
           found == file.tensors().end() ? "none"
                                         : octavo::str(at::IntArrayRef(found->second.shape)));
    p->master.copy_(file.tensor(name));
  }
  if (file.tensors().size() != lora->params().size())
    fail(ExitCode::kUsage, "train", file.path().string(), ": has ", file.tensors().size(),
         " tensors, its adapter_config.json describes ", lora->params().size(),
         "; some of them would be left out");
  nn::refresh_compute(lora->params());
  return lora;
}

}  // namespace octavo::train

// PEFT's files: adapter_config.json and adapter_model.safetensors, whose tensors are named
// base_model.model.<module>.lora_A.weight.

#include <ATen/ATen.h>

#include <set>

#include "base/error.h"
#include "base/model_file.h"
#include "checkpoint/safetensors.h"
#include "train/lora_run.h"
#include "train/state/peft_config.h"

namespace octavo::train {
namespace {

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kTensorsName = "adapter_model.safetensors";
constexpr const char* kPrefix = "base_model.model.";

// Before memory is taken for adapters of the rank that the configuration says: the tensors have it.
void check_rank(const checkpoint::SafetensorsReader& file, int64_t rank) {
  for (const auto& [name, info] : file.tensors())
    if (name.ends_with(".lora_A.weight") && (info.shape.empty() || info.shape[0] != rank))
      fail(ExitCode::kDamaged, "train", file.path().string(), ": tensor ",
           checkpoint::quote_name(name), ": wanted shape [", rank,
           ", …] as adapter_config.json's 'r'", " says, found ", at::IntArrayRef(info.shape));
}

}  // namespace

bool is_peft_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfigName, error);
}

std::string peft_base(const fs::path& folder) {
  const fs::path file = model_file(folder, kConfigName);
  return json_string(read_json(file), "base_model_name_or_path", file.string());
}

std::string peft_revision(const fs::path& folder) {
  const fs::path file = model_file(folder, kConfigName);
  const Json config = read_json(file);
  if (!config.contains("revision") || config.at("revision").is_null()) return "";
  return json_string(config, "revision", file.string());
}

void write_peft(const nn::Lora& lora, const models::Model& model, const std::string& base,
                const fs::path& folder, const std::string& revision) {
  std::set<std::string> targets;
  for (const auto& module : lora.modules()) targets.insert(nn::last_part(module));
  const nn::LoraOptions& o = lora.options();
  const bool is_gpt2 = model.hugging_face_config().at("model_type") == "gpt2";
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"revision", revision.empty() ? Json() : Json(revision)},
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
  const nn::LoraOptions options =
      parse_peft_config(read_json(model_file(folder, kConfigName)), source);
  const checkpoint::SafetensorsReader file(model_file(folder, kTensorsName));
  check_rank(file, options.rank);
  auto lora = std::make_unique<nn::Lora>(engine, lora_layers(model), options);
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

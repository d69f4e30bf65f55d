#include "export/source.h"

#include <ATen/ATen.h>

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "data/chat_template.h"
#include "hub/hub.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"

namespace octavo::exporter {
namespace {

// As load_model() tells them apart.
bool is_octavo_checkpoint(const config::Settings& s) {
  if (fs::exists(fs::path(s.checkpoint) / "config.json") || train::is_peft_folder(s.checkpoint))
    return false;
  return checkpoint::is_checkpoint_name(train::checkpoint_dir(s), s.checkpoint);
}

std::function<at::Tensor(const std::string&)> by_name(const models::NamedTensors& tensors) {
  auto map = std::make_shared<std::map<std::string, at::Tensor>>(tensors.begin(), tensors.end());
  return [map](const std::string& name) { return map->at(name); };
}

std::vector<std::string> matrices_of(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.linears())
    for (const auto& module : model.modules_of(*layer)) names.push_back(module.name + ".weight");
  return names;
}

// The folder's files in their own precision, each when it is asked for.
void take_folder(const fs::path& folder, ExportSource& source) {
  const auto weights = std::make_shared<checkpoint::HfWeights>(folder);
  source.source_config = weights->files().config;
  const train::Outline outline =
      train::make_outline(source.source_config, (folder / "config.json").string());
  const train::FolderMatch match = train::match_folder(*weights, *outline.model);
  if (!match.problems.empty())
    fail(ExitCode::kDamaged, "train", folder.string(), ": ", match.problems.front());
  source.outlines = match.outlines;
  std::map<std::string, std::string> file_name;
  for (size_t i = 0; i < match.outlines.size(); ++i)
    file_name[match.outlines[i].first] = match.file_names[i];
  source.tensor = [weights, file_name, last = std::string()](const std::string& name) mutable {
    if (!last.empty()) weights->release(last);
    last = file_name.at(name);
    return weights->tensor(last);
  };
}

// Views of the checkpoint's mapped files, under the names of Hugging Face. (GPT-2's matrices are
// stored transposed there, and are copies.)
void take_checkpoint(const config::Settings& settings, const checkpoint::Loaded& found,
                     ExportSource& source) {
  const std::string& where = source.name;
  const Json& extra = found.state.extra;
  const Json& config = json_field(extra, "model", Json::value_t::object, where);
  const train::Outline outline = train::make_outline(config, where);
  const auto find = train::finder(found.state, "model");
  for (const auto& p : outline.model->params()) {
    const at::Tensor stored = find(p->name);
    if (!stored.defined() || stored.sizes() != p->master.sizes())
      fail(ExitCode::kDamaged, "train", where, ": weight '", p->name, "': wanted shape ",
           p->master.sizes(), ", found ",
           stored.defined() ? octavo::str(stored.sizes()) : std::string("none"));
    p->master = stored;
  }
  source.outlines = outline.model->to_hugging_face();
  source.tensor = by_name(source.outlines);
  source.loaded.engine = std::make_unique<engine::Engine>(train::cpu_target_of(settings));
  source.loaded.model =
      train::make_model(config, where, *source.loaded.engine, {.trainable = false});
  train::load_weights(*source.loaded.model, found.state);
  source.loaded.tokenizer = json_string(extra, "tokenizer", where);
  source.loaded.tokenizer_fingerprint = json_string(extra, "tokenizer_fingerprint", where);
}

// Adapters, merged in memory: no file has the sum.
void take_merged(const config::Settings& settings, ExportSource& source) {
  source.loaded = train::load_model(settings);
  source.outlines = source.loaded.model->to_hugging_face();
  source.tensor = by_name(source.outlines);
}

// The template of the rows that a checkpoint was trained on.
std::optional<config::ChatTemplate> trained_template(const Json& extra, const std::string& where) {
  if (!extra.contains("chat_template")) {
    log_info(octavo::str(where,
                         " was written by a version that did not keep the chat template: its "
                         "stop tokens are those of its tokenizer's folder; --chat_template "
                         "names what it was trained with"));
    return std::nullopt;
  }
  if (extra.at("chat_template").is_null()) return std::nullopt;  // trained on text
  return data::template_named(json_string(extra, "chat_template", where), where);
}

// Where the files of a tokenizer lie, by the name that loads it.
fs::path tokenizer_folder(const std::string& tokenizer) {
  std::error_code none;
  if (fs::is_directory(tokenizer, none)) return tokenizer;
  if (fs::is_regular_file(tokenizer, none)) {
    const fs::path parent = fs::path(tokenizer).parent_path();
    return parent.empty() ? fs::path(".") : parent;
  }
  return {};
}

}  // namespace

ExportSource open_export_source(const config::Settings& settings) {
  const std::string& what = settings.checkpoint;
  ExportSource source;
  source.name = what;
  if (is_octavo_checkpoint(settings)) {
    const auto found =
        checkpoint::load_resolved(train::checkpoint_dir(settings), what, settings.run_name);
    source.name = found.path.string();
    if (settings.chat_template == config::ChatTemplate::kAuto)
      source.chat_template = trained_template(found.state.extra, source.name);
    if (train::is_lora(found.state))
      take_merged(settings, source);
    else
      take_checkpoint(settings, found, source);
  } else if (train::is_peft_folder(what)) {
    take_merged(settings, source);
  } else {
    source.loaded = train::load_model(settings);
    take_folder(source.loaded.tokenizer, source);  // the folder, also of a name on the hub
  }
  if (settings.chat_template != config::ChatTemplate::kAuto)
    source.chat_template = settings.chat_template;
  source.tokenizer = source.loaded.tokenizer;
  source.files = tokenizer_folder(source.tokenizer);
  source.config = source.loaded.model->hugging_face_config();
  source.matrices = matrices_of(*source.loaded.model);
  return source;
}

}  // namespace octavo::exporter

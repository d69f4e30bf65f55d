#include "migrate/import_read.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/secrets.h"
#include "base/text.h"
#include "config/key.h"
#include "config/yaml.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

constexpr size_t kMaxForeignKeys = 1000;

std::string scalar_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void flatten(const Json& object, const std::string& prefix, const std::string& where,
             std::vector<ForeignEntry>& entries) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = prefix + name;
    if (value.is_object() && !value.empty()) {
      flatten(value, path + ".", where, entries);
      continue;
    }
    // "a.b" and {"a": {"b"}} would be one key with two values.
    for (const ForeignEntry& entry : entries)
      if (entry.path == path)
        fail(ExitCode::kUsage, "config", where, ": wanted each key once, found ", shown_text(path),
             " twice");
    if (entries.size() == kMaxForeignKeys)
      fail(ExitCode::kUsage, "config", where, ": wanted at most ", kMaxForeignKeys,
           " keys, found more; is this a configuration file?");
    ForeignEntry entry{.path = path, .values = {}, .where = where};
    entry.is_null = value.is_null() || value.is_object();
    entry.is_list = value.is_array();
    if (value.is_array())
      for (const Json& item : value) entry.values.push_back(scalar_text(item));
    else if (!entry.is_null)
      entry.values.push_back(scalar_text(value));
    entries.push_back(std::move(entry));
  }
}

std::vector<ForeignEntry> json_entries(const std::string& text, const std::string& path) {
  Json document;
  try {
    document = parse_json(text, path, {.max_bytes = config::kMaxYamlBytes, .max_depth = 16});
  } catch (const Error& error) {
    const std::string_view message = error.what();  // "[base] …"
    fail(ExitCode::kUsage, "config", message.substr(message.find(' ') + 1),
         "; wanted the JSON that DeepSpeed reads");
  }
  if (!document.is_object())
    fail(ExitCode::kUsage, "config", path, ": wanted a JSON object of settings, found ",
         document.type_name());
  std::vector<ForeignEntry> entries;
  flatten(document, "", path, entries);
  return entries;
}

std::vector<ForeignEntry> yaml_entries(const std::string& text, const std::string& path) {
  std::vector<ForeignEntry> entries;
  for (config::YamlEntry& entry : config::parse_yaml(text, path, {.sections = true, .nulls = true}))
    entries.push_back({.path = std::move(entry.name),
                       .values = std::move(entry.values),
                       .is_list = entry.is_list,
                       .is_null = entry.is_null,
                       .where = str(path, ":", entry.line)});
  return entries;
}

bool is_name(std::string_view text) {
  if (text.empty() || (text.front() >= '0' && text.front() <= '9')) return false;
  return std::ranges::all_of(
      text, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

// NAME=VALUE, `export NAME=VALUE` and several of them in a line; the last value of a name counts,
// as in a shell. Everything else is the script's own business, and counted.
void read_script(const std::string& text, ForeignFile& file) {
  int number = 0;
  for (const std::string& raw : split(text, '\n')) {
    ++number;
    std::string_view line = trim(raw);
    if (line.starts_with('#') || line.empty()) continue;
    if (line.starts_with("export ")) line = trim(line.substr(7));
    bool found = false;
    for (const std::string& word : split(line, ' ')) {
      if (word.empty()) continue;
      const size_t equals = word.find('=');
      if (equals == word.npos || !is_name(std::string_view(word).substr(0, equals))) break;
      std::string value = word.substr(equals + 1);
      std::erase_if(value, [](char c) { return c == '"' || c == '\''; });
      const std::string name = word.substr(0, equals);
      std::erase_if(file.entries, [&](const ForeignEntry& entry) { return entry.path == name; });
      if (file.entries.size() == kMaxForeignKeys)
        fail(ExitCode::kUsage, "config", file.shown, ": wanted at most ", kMaxForeignKeys,
             " variables, found more");
      file.entries.push_back(
          {.path = name, .values = {std::move(value)}, .where = str(file.shown, ":", number)});
      found = true;
    }
    file.other_lines += found ? 0 : 1;
  }
}

bool names_any(const ForeignFile& file, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(file.entries, [&](const ForeignEntry& entry) {
    return std::ranges::find(names, entry.path) != names.end();
  });
}

bool is_accelerate(const ForeignFile& file) {
  return names_any(file, {"compute_environment", "distributed_type"}) ||
         (names_any(file, {"num_processes"}) && names_any(file, {"num_machines"}));
}

// TRL and LLaMA-Factory share the keys of Hugging Face's Trainer, and differ in how they name data
// and adapters.
bool is_trl(const ForeignFile& file) {
  return names_any(file, {"model_name_or_path", "per_device_train_batch_size", "num_train_epochs",
                          "output_dir", "logging_steps", "save_steps"}) &&
         names_any(file, {"dataset_name", "dataset_train_split", "dataset_test_split", "use_peft",
                          "lora_r", "max_length", "assistant_only_loss", "completion_only_loss",
                          "dataset_text_field", "dataset_num_proc", "torch_dtype", "dtype",
                          "attn_implementation", "load_in_4bit", "load_in_8bit"}) &&
         !names_any(file, {"stage", "finetuning_type", "template", "cutoff_len", "val_size",
                           "dataset", "dataset_dir", "lora_target", "fp8"});
}

// Whose keys are these? By how many of them each program knows.
ForeignForm form_of(const ForeignFile& file, bool is_json) {
  const auto count = [&](auto&& knows) { return std::ranges::count_if(file.entries, knows); };
  for (const ForeignEntry& entry : file.entries)
    if (entry.path.starts_with("parameters.") &&
        (entry.path.ends_with(".values") || entry.path.ends_with(".value")))
      fail(ExitCode::kUsage, "config", entry.where,
           ": wanted a configuration of one run, found a W&B sweep (", shown_text(entry.path),
           "), which is many; run it as it is: octavo sweep run ", file.shown,
           " CONFIG.yaml, or octavo sweep create for agents on several machines");
  if (is_accelerate(file)) return ForeignForm::kAccelerate;
  if (is_trl(file)) return ForeignForm::kTrl;
  const auto llama_factory = count([](const ForeignEntry& entry) {
    return find_mapping(ForeignForm::kLlamaFactory, entry.path) != nullptr;
  });
  const auto deepspeed = count([](const ForeignEntry& entry) {
    return find_mapping(ForeignForm::kDeepSpeed, entry.path) != nullptr;
  });
  const auto ours = count([](const ForeignEntry& entry) {
    return config::find_key(entry.path) != nullptr || is_planned(entry.path);
  });
  if (is_json && (file.entries.empty() || (deepspeed > 0 && deepspeed >= llama_factory)))
    return ForeignForm::kDeepSpeed;
  if (llama_factory == 0 && deepspeed == 0 && ours == 0)
    fail(ExitCode::kUsage, "config", file.shown,
         ": wanted a configuration of LLaMA-Factory, TRL, Accelerate, DeepSpeed or of octavo's own "
         "keys, found ",
         file.entries.empty()
             ? "nothing in it"
             : "none of their keys, first " + shown_text(file.entries.front().path));
  if (deepspeed > llama_factory && deepspeed > ours) return ForeignForm::kDeepSpeed;
  return llama_factory > ours ? ForeignForm::kLlamaFactory : ForeignForm::kGuide;
}

}  // namespace

std::string_view name_of(ForeignForm form) {
  switch (form) {
    case ForeignForm::kLlamaFactory:
      return "LLaMA-Factory";
    case ForeignForm::kDeepSpeed:
      return "DeepSpeed";
    case ForeignForm::kGuide:
      return "octavo's keys";
    case ForeignForm::kTrl:
      return "TRL";
    case ForeignForm::kAccelerate:
      return "Accelerate";
    case ForeignForm::kVariables:
      break;
  }
  return "variables";
}

std::string shown_text(const std::string& given, size_t most) {
  const std::string text = without_secrets(given);
  std::string quoted =
      Json(text.substr(0, most)).dump(-1, ' ', true, Json::error_handler_t::replace);
  // Quotes are for what would be misread without them.
  const bool plain = !text.empty() && quoted.size() == text.size() + 2 && trim(text) == text;
  if (plain) quoted = text;
  return text.size() > most ? quoted + "…" : quoted;
}

std::string shown_path(const std::string& path) {
  constexpr size_t kLongestPath = 4096;
  return shown_text(path, kLongestPath);
}

std::string ForeignEntry::text() const {
  if (is_null) return "null";
  if (is_secret_name(path)) return "(hidden)";
  if (!is_list) return shown_text(values.front());
  std::vector<std::string> shown;
  for (const std::string& value : values) shown.push_back(shown_text(value));
  if (shown.size() > 8) {
    shown.resize(8);
    shown.push_back(str("… ", values.size(), " in all"));
  }
  return "[" + join(shown, ", ") + "]";
}

ForeignFile read_foreign(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(ExitCode::kUsage, "config", "wanted a file to import, found no file ", shown_path(path),
         "; check the path");
  if (const uintmax_t size = fs::file_size(path, error); size > config::kMaxYamlBytes)
    fail(ExitCode::kUsage, "config", shown_path(path), ": wanted at most ", config::kMaxYamlBytes,
         " bytes, found ", size, "; is this a configuration file?");
  if (path.ends_with(".toml"))
    fail(ExitCode::kUsage, "config", shown_path(path),
         ": wanted YAML, JSON or a launch script, found TOML, which octavo does not read "
         "(torchtitan's, probably); write its values into a YAML: training.steps is max_steps, "
         "training.local_batch_size batch_size, training.seq_len max_seq_length, optimizer.lr "
         "learning_rate, float8 mixed_precision: fp8; docs/migrate.md has the others");
  const std::string text = read_file(path, config::kMaxYamlBytes);
  ForeignFile file{.path = path, .shown = shown_path(path), .entries = {}};
  for (const char* ending : {".sh", ".env", ".sbatch", ".slurm"})
    if (path.ends_with(ending)) {
      file.form = ForeignForm::kVariables;
      read_script(text, file);
      return file;
    }
  const bool is_json = path.ends_with(".json");
  file.entries = is_json ? json_entries(text, file.shown) : yaml_entries(text, file.shown);
  file.form = form_of(file, is_json);
  return file;
}

}  // namespace octavo::migrate

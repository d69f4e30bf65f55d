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
#include "migrate/read_python.h"
#include "migrate/read_shell.h"
#include "migrate/read_toml.h"

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
    ForeignEntry entry{.path = path, .values = {}, .where = where};
    entry.is_null = value.is_null() || value.is_object();
    entry.is_list = value.is_array();
    if (value.is_array())
      for (const Json& item : value) entry.values.push_back(scalar_text(item));
    else if (!entry.is_null)
      entry.values.push_back(scalar_text(value));
    add_entry(entries, std::move(entry), where);  // "a.b" and {"a": {"b"}} would be one key
  }
}

std::vector<ForeignEntry> json_entries(const std::string& text, const std::string& path) {
  Json document;
  try {
    document = parse_json(text, path, {.max_bytes = config::kMaxYamlBytes, .max_depth = 16});
  } catch (const Error& error) {
    const std::string_view message = error.what();  // "[base] …"
    fail(ExitCode::kUsage, "config", message.substr(message.find(' ') + 1),
         "; wanted the JSON that DeepSpeed or Hugging Face's Trainer reads");
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

bool is_fsdp(const ForeignFile& file) {
  return names_any(file, {"fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap",
                          "fsdp_sharding_strategy", "fsdp_reshard_after_forward",
                          "reshard_after_forward", "fsdp_auto_wrap_policy", "fsdp_version",
                          "backward_prefetch", "fsdp_backward_prefetch"}) &&
         !names_any(file, {"per_device_train_batch_size", "output_dir", "learning_rate"});
}

// TrainingArguments alone, or with the keys of transformers' own scripts (run_clm.py).
bool is_trainer(const ForeignFile& file, bool is_json) {
  const auto known = std::ranges::count_if(
      file.entries, [](const ForeignEntry& entry) { return is_trainer_key(entry.path); });
  if (known < 3 || !names_any(file, {"per_device_train_batch_size", "output_dir",
                                     "num_train_epochs", "model_name_or_path"}))
    return false;
  if (names_any(file, {"stage", "finetuning_type", "template", "cutoff_len", "val_size", "dataset",
                       "dataset_dir", "lora_target", "fp8"}))
    return false;
  const bool clm = names_any(file, {"block_size", "train_file", "dataset_config_name"});
  return clm || (!is_trl(file) && (is_json || names_any(file, {"gradient_checkpointing", "fsdp",
                                                               "torch_compile", "tf32"})));
}

// Megatron's arguments as YAML (--yaml-cfg), or as its own tests and NeMo write them.
bool is_megatron(const ForeignFile& file) {
  return std::ranges::count_if(file.entries, [](const ForeignEntry& entry) {
           const std::string name = megatron_name(entry.path);
           return name == "num-layers" || name == "hidden-size" || name == "micro-batch-size" ||
                  name == "tensor-model-parallel-size";
         }) >= 2;
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
  if (is_megatron(file)) return ForeignForm::kMegatron;
  if (is_accelerate(file)) return ForeignForm::kAccelerate;
  if (is_trainer(file, is_json)) return ForeignForm::kTrainer;
  if (is_fsdp(file)) return ForeignForm::kFsdp;
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
         ": wanted a configuration of torchtitan, Megatron, LLaMA-Factory, TRL, Trainer, "
         "Accelerate, DeepSpeed, FSDP or of octavo's own keys, found ",
         file.entries.empty()
             ? "nothing in it"
             : "none of their keys, first " + shown_text(file.entries.front().path));
  if (deepspeed > llama_factory && deepspeed > ours) return ForeignForm::kDeepSpeed;
  return llama_factory > ours ? ForeignForm::kLlamaFactory : ForeignForm::kGuide;
}

// A pyproject.toml is TOML, too.
void refuse_other_toml(const ForeignFile& file) {
  for (const ForeignEntry& entry : file.entries)
    for (const std::string_view section : {"training.", "parallelism.", "model.", "model_spec"})
      if (entry.path.starts_with(section)) return;
  fail(ExitCode::kUsage, "config", file.shown,
       ": wanted torchtitan's sections (training, parallelism, model), found ",
       file.entries.empty() ? "nothing in it"
                            : "none of them, first " + shown_text(file.entries.front().path));
}

// Flags that only Hugging Face's programs have.
bool is_trainer_command(const ShellScript& script) {
  return std::ranges::any_of(script.flags, [](const ForeignEntry& entry) {
    return entry.path == "per_device_train_batch_size" || entry.path == "model_name_or_path";
  });
}

// Megatron's arguments, Trainer's arguments, or variables alone.
void read_launch_script(const std::string& text, ForeignFile& file) {
  ShellScript script;
  if (file.path.ends_with(".args"))
    script.flags = argument_entries(text, file.shown);
  else
    script = read_shell(text, file.shown);
  file.entries = script.flags;
  const bool megatron = is_megatron(file), trainer = !megatron && is_trainer_command(script);
  if (!megatron && !trainer) {
    file.entries.clear();
    file.form = ForeignForm::kVariables;
    return read_script(text, file);
  }
  // A command of LLaMA-Factory or TRL has a flag of its own; one without is of transformers.
  file.form = megatron                 ? ForeignForm::kMegatron
              : is_trainer(file, true) ? ForeignForm::kTrainer
                                       : form_of(file, false);
  if (megatron)
    for (ForeignEntry& entry : file.entries) entry.path = megatron_name(entry.path);
  for (auto* more : {&script.launcher, &script.exports, &script.others})
    for (ForeignEntry& entry : *more) {
      if (more == &script.launcher) {
        entry.path = "launch " + entry.path;
        std::ranges::replace(entry.path, '_', '-');
      }
      std::erase_if(file.entries, [&](const ForeignEntry& e) { return e.path == entry.path; });
      add_entry(file.entries, std::move(entry), file.shown);
    }
}

}  // namespace

std::string megatron_name(std::string_view path) {
  std::string name(path.substr(path.rfind('.') + 1));  // npos + 1 is 0
  if (name.starts_with("--")) name.erase(0, 2);
  std::ranges::replace(name, '_', '-');
  return name;
}

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
    case ForeignForm::kTrainer:
      return "Hugging Face's Trainer";
    case ForeignForm::kFsdp:
      return "FSDP";
    case ForeignForm::kTorchtitan:
      return "torchtitan";
    case ForeignForm::kMegatron:
      return "Megatron";
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

std::string code_text(std::string_view text) {
  constexpr size_t kMostShown = 160;
  std::string small(text);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const char* word : {"token", "key", "secret", "passw", "login", "auth"})
    if (small.find(word) != small.npos) return "(hidden)";
  return std::string(trim(text.substr(0, kMostShown)));
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

void add_entry(std::vector<ForeignEntry>& entries, ForeignEntry entry, const std::string& shown) {
  for (const ForeignEntry& before : entries)
    if (before.path == entry.path)
      fail(ExitCode::kUsage, "config", shown, ": wanted each key once, found ",
           shown_text(entry.path), " twice");
  if (entries.size() == kMaxForeignKeys)
    fail(ExitCode::kUsage, "config", shown, ": wanted at most ", kMaxForeignKeys,
         " keys, found more; is this a configuration file?");
  entries.push_back(std::move(entry));
}

ForeignFile read_foreign(const std::string& given) {
  // config_registry.py:llama3_8b
  const size_t colon = given.rfind(".py:");
  const std::string path = colon == given.npos ? given : given.substr(0, colon + 3);
  const std::string wanted = colon == given.npos ? "" : given.substr(colon + 4);
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(ExitCode::kUsage, "config", "wanted a file to import, found no file ", shown_path(path),
         "; check the path");
  if (const uintmax_t size = fs::file_size(path, error); size > config::kMaxYamlBytes)
    fail(ExitCode::kUsage, "config", shown_path(path), ": wanted at most ", config::kMaxYamlBytes,
         " bytes, found ", size, "; is this a configuration file?");
  const std::string text = read_file(path, config::kMaxYamlBytes);
  ForeignFile file{.path = path, .shown = shown_path(path), .entries = {}};
  if (path.ends_with(".toml") || path.ends_with(".py")) {
    file.form = ForeignForm::kTorchtitan;
    file.entries = path.ends_with(".py") ? python_entries(text, file.shown, wanted)
                                         : toml_entries(text, file.shown);
    refuse_other_toml(file);
    return file;
  }
  for (const char* ending : {".sh", ".bash", ".env", ".sbatch", ".slurm", ".args"})
    if (path.ends_with(ending)) {
      read_launch_script(text, file);
      return file;
    }
  const bool is_json = path.ends_with(".json");
  file.entries = is_json ? json_entries(text, file.shown) : yaml_entries(text, file.shown);
  file.form = form_of(file, is_json);
  if (file.form == ForeignForm::kMegatron)
    for (ForeignEntry& entry : file.entries) entry.path = megatron_name(entry.path);
  return file;
}

}  // namespace octavo::migrate

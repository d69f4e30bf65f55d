#include "migrate/import_builder.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/names.h"
#include "config/rules.h"

namespace octavo::migrate {
namespace {

constexpr std::array<std::string_view, 0> kPlanned{};  // all have come

const Mapping* find_in(std::span<const Mapping> table, std::string_view path) {
  for (const Mapping& mapping : table) {
    if (mapping.theirs == path) return &mapping;
    if (mapping.theirs.ends_with(".*") &&
        path.starts_with(mapping.theirs.substr(0, mapping.theirs.size() - 1)))
      return &mapping;
  }
  return nullptr;
}

[[noreturn]] void wrong_value(const ForeignEntry& entry, std::string_view wanted,
                              std::string_view remedy) {
  fail(ExitCode::kUsage, "config", entry.where, ": ", shown_text(entry.path), ": wanted ", wanted,
       ", found ", entry.text(), "; ", remedy);
}

constexpr std::string_view kCorrect = "correct it in that file and import again";

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::span<const ForeignDefault> defaults_of(ForeignForm form) {
  switch (form) {
    case ForeignForm::kLlamaFactory:
      return llama_factory_defaults();
    case ForeignForm::kTrl:
      return trl_defaults();
    case ForeignForm::kTrainer:
      return trainer_defaults();
    case ForeignForm::kTorchtitan:
      return torchtitan_defaults();
    case ForeignForm::kMegatron:
      return megatron_defaults();
    default:
      return {};
  }
}

// "train.yaml:3: fp8_backend"
std::string place_of(const ForeignEntry& entry) {
  return entry.where.empty() ? entry.path : entry.where + ": " + shown_text(entry.path);
}

}  // namespace

bool Import::is_refused() const {
  return std::ranges::any_of(
      findings, [](const Finding& f) { return f.verdict == Finding::Verdict::kRefused; });
}

const Mapping* find_mapping(ForeignForm form, std::string_view path) {
  const auto either = [&](std::span<const Mapping> mappings, std::span<const Mapping> drops) {
    const Mapping* found = find_in(mappings, path);
    return found != nullptr ? found : find_in(drops, path);
  };
  // A script's launcher is the same whichever of these it starts.
  if (path.starts_with("launch ") &&
      (form == ForeignForm::kLlamaFactory || form == ForeignForm::kTrl))
    return either(trainer_mappings(), trainer_drops());
  const Mapping* found = nullptr;
  switch (form) {
    case ForeignForm::kDeepSpeed:
      return either(deepspeed_mappings(), deepspeed_drops());
    case ForeignForm::kAccelerate:
      return either(accelerate_mappings(), accelerate_drops());
    case ForeignForm::kFsdp:
      return either(fsdp_mappings(), fsdp_drops());
    case ForeignForm::kTorchtitan:
      return either(torchtitan_mappings(), torchtitan_drops());
    case ForeignForm::kMegatron:
      return either(megatron_mappings(), megatron_drops());
    case ForeignForm::kTrl:
      found = either(trl_mappings(), trl_drops());
      break;
    case ForeignForm::kTrainer:
      found = either(trainer_mappings(), trainer_drops());
      break;
    case ForeignForm::kLlamaFactory:
    case ForeignForm::kGuide:
    case ForeignForm::kVariables:
      return either(llama_factory_mappings(), llama_factory_drops());
  }
  // Trainer's own keys are LLaMA-Factory's, too.
  if (found != nullptr || !is_trainer_key(path)) return found;
  return either(llama_factory_mappings(), llama_factory_drops());
}

std::span<const std::string_view> planned_keys() {
  return kPlanned;
}

bool is_planned(std::string_view name) {
  return std::ranges::find(kPlanned, name) != std::end(kPlanned);
}

const config::Key* available_key(std::string_view name) {
  const config::Key* key = config::find_key(name);
  return key != nullptr && is_planned(name) && !(key->readers & config::reader::kTrain) ? nullptr
                                                                                        : key;
}

void Importer::add(ForeignFile file) {
  result.files.push_back(file.shown + ": " + std::string(name_of(file.form)));
  files_.push_back(std::move(file));
}

void Importer::run() {
  add_defaults();
  // What a file says comes before what a program would have done by itself.
  for (const bool defaults : {false, true})
    for (const ForeignFile& file : files_)
      for (const ForeignEntry& entry : file.entries)
        if (entry.is_default == defaults) convert(file, entry);
  if (has(ForeignForm::kTorchtitan)) settle_torchtitan_model(*this);
  if (has(ForeignForm::kMegatron)) settle_megatron_model(*this);
  settle_parallelism(*this);
  check_batch_product(*this);
  check_lora_gain(*this);
  check_evaluation(*this);
  check_precision(*this);
  check_names(*this);
  check_variables(*this, files_);
  for (const std::string& line : contradictions(result.settings, config::reader::kAll))
    result.findings.push_back({Finding::Verdict::kRefused, "contradiction", "all files together",
                               line, "octavo would refuse to start", "change one of the keys"});
}

void Importer::add_defaults() {
  // The name before it, in older versions; with that in the file the new one has no default.
  static constexpr std::pair<std::string_view, std::string_view> kOlder[] = {
      {"training.local_batch_size", "training.batch_size"},
      {"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"},
      {"eval_strategy", "evaluation_strategy"}};
  for (ForeignFile& file : files_)
    for (const ForeignDefault& usual : defaults_of(file.form)) {
      const std::string path(usual.theirs);
      if (entry_of(file.form, path) != nullptr) continue;
      if (std::ranges::any_of(kOlder, [&](const auto& names) {
            return names.first == path && entry_of(file.form, names.second) != nullptr;
          }))
        continue;
      // bf16 is on there only when fp16 is not.
      if (file.form == ForeignForm::kTrl && path == "bf16" && is_on(file.form, "fp16")) continue;
      file.entries.push_back({.path = path,
                              .values = {std::string(usual.value)},
                              .is_default = true,
                              .where = str(name_of(file.form), "'s default")});
    }
}

void Importer::convert(const ForeignFile& file, const ForeignEntry& entry) {
  if (file.form == ForeignForm::kVariables) return;  // check_variables
  if (entry.is_code)
    return drop(entry, "code, which is not executed; if it matters, add our key by hand");
  if (entry.path.starts_with("export "))
    return drop(entry, "a variable, not a key; octavo verify looks at those that matter");
  if (entry.is_null) return leave(entry, "empty: their default");
  if (file.form == ForeignForm::kGuide) return convert_guide(entry);
  const bool deepspeed = file.form == ForeignForm::kDeepSpeed;
  if (deepspeed && entry.values == std::vector<std::string>{"auto"})
    return leave(entry, has(ForeignForm::kLlamaFactory) || has(ForeignForm::kTrl) ||
                                has(ForeignForm::kTrainer)
                            ? "filled in from the YAML, whose keys are carried"
                            : "filled in by the program that reads it; octavo's default");
  const Mapping* mapping = find_mapping(file.form, entry.path);
  if (mapping == nullptr)
    return drop(entry, config::find_key(entry.path) == nullptr
                           ? str(name_of(file.form), " has no such key that octavo knows of")
                           : str("not a key of ", name_of(file.form),
                                 "; octavo has one of this name: add it by hand if it is meant"));
  if (mapping->convert != nullptr) return mapping->convert(*this, entry);
  if (mapping->ours.empty()) return drop(entry, mapping->how);
  map_to(entry, mapping->ours, entry.values, mapping->how);
}

std::optional<HubDataset> short_dataset(std::string_view name) {
  const config::DatasetName* known = config::find_dataset(name);
  if (known == nullptr) return std::nullopt;
  return HubDataset{known->hub, known->subset, known->split};
}

// Our own keys, as the guides' scripts have them.
void Importer::convert_guide(const ForeignEntry& entry) {
  const config::Key* key = config::find_key(entry.path);
  if (key != nullptr && key->name == "dataset" && entry.values.size() == 1)
    if (const std::optional<HubDataset> whole = short_dataset(entry.values.front())) {
      map_to(entry, "dataset", std::string(whole->name));
      if (!whole->config.empty()) map_to(entry, "dataset_config", std::string(whole->config));
      if (!whole->split.empty() && entry_of(ForeignForm::kGuide, "split_name") == nullptr)
        map_to(entry, "split_name", std::string(whole->split));
      return find(Finding::Verdict::kRepaired, "short_dataset_name", entry,
                  "a short name; the hub has no data set of this name",
                  "other programs would not find it",
                  str("dataset ", whole->name,
                      whole->config.empty() ? "" : str(", dataset_config ", whole->config),
                      whole->split.empty() ? "" : str(", split_name ", whole->split)));
    }
  if (key != nullptr && key->name == "max_batch_size" &&
      entry_of(ForeignForm::kGuide, "auto_batch_size") == nullptr &&
      entry_of(ForeignForm::kGuide, "batch_size") == nullptr) {
    map_to(entry, "max_batch_size", entry.values);
    map_to(entry, "auto_batch_size", std::string("true"));
    return find(Finding::Verdict::kRepaired, "adaptive_batch", entry,
                "the script takes the largest batch that fits, up to this one",
                "octavo would train with its default batch_size 8", "auto_batch_size: true");
  }
  if (key != nullptr) return map_to(entry, key->name, entry.values);
  if (is_planned(entry.path)) return map_to(entry, entry.path, entry.values);
  const Mapping* mapping = find_mapping(ForeignForm::kLlamaFactory, entry.path);
  if (mapping != nullptr && mapping->convert != nullptr) return mapping->convert(*this, entry);
  if (mapping != nullptr && mapping->ours.empty()) return drop(entry, mapping->how);
  if (mapping != nullptr) return map_to(entry, mapping->ours, entry.values, mapping->how);
  const std::string nearest = config::nearest_key(entry.path);
  drop(entry, nearest.empty() ? "no such key" : "no such key; did you mean " + nearest + "?");
}

void Importer::map_to(const ForeignEntry& entry, std::string_view ours,
                      std::vector<std::string> words, std::string_view note) {
  const config::Key* key = available_key(ours);
  if (key == nullptr) {
    OCTAVO_ASSERT(is_planned(ours));
    result.understood.push_back(
        {entry.where, entry.path, entry.text(), str(ours, ": ", shown_text(join(words, ", "))),
         str(note, note.empty() || config::find_key(ours) == nullptr ? "" : "; ",
             config::find_key(ours) == nullptr ? "" : "octavo plan takes it")});
    return;
  }
  if (words.size() != 1 && key->type != config::Type::kList)
    wrong_value(entry, key->wanted + " for our key " + key->name, kCorrect);
  config::Settings trial = result.settings;
  if (!key->store(trial, words)) {
    const std::vector<std::string> lower{lower_case(words.front())};
    if (key->type != config::Type::kEnum || !key->store(trial, lower))
      wrong_value(entry, key->wanted + " for our key " + key->name, kCorrect);
    words = lower;
    find(Finding::Verdict::kRepaired, "letter_case", entry, "our names are lower-case",
         "octavo would refuse to start", str(ours, ": ", lower.front()));
  }
  store({.where = entry.where,
         .theirs = entry.path,
         .from = entry.text(),
         .ours = key->name,
         .to = key->text(trial),
         .note = std::string(note),
         .is_default = entry.is_default,
         .words = std::move(words)});
}

// False when another file or key has said it already.
bool Importer::store(MappedKey item) {
  const config::Key* key = config::find_key(item.ours);
  for (MappedKey& before : result.mapped) {
    if (before.ours != item.ours) continue;
    if (item.is_default) return false;
    if (before.to != item.to)
      result.findings.push_back(
          {Finding::Verdict::kRefused, "disagreement", item.where + ": " + shown_text(item.theirs),
           str(shown_text(before.theirs), " says ", before.from, " (", before.where, ") and ",
               shown_text(item.theirs), " says ", item.from, " (", item.where, "); both are our ",
               item.ours),
           "Hugging Face's Trainer stops at such a pair, or one of them wins without a word",
           "make them equal, or write \"auto\" into the JSON"});
    return false;
  }
  key->store(result.settings, item.words);
  result.mapped.push_back(std::move(item));
  return true;
}

void Importer::drop(const ForeignEntry& entry, std::string_view why) {
  if (entry.is_default) return;
  result.dropped.push_back({entry.where, entry.path, entry.text(), "", std::string(why)});
}

void Importer::leave(const ForeignEntry& entry, std::string_view why) {
  if (entry.is_default) return;
  result.unset.push_back({entry.where, entry.path, entry.text(), "", std::string(why)});
}

void Importer::find(Finding::Verdict verdict, std::string id, const ForeignEntry& entry,
                    const std::string& problem, std::string cost, std::string done) {
  result.findings.push_back({verdict, std::move(id), place_of(entry),
                             str("found ", entry.text(), ": ", problem), std::move(cost),
                             std::move(done)});
}

const ForeignEntry* Importer::entry_of(ForeignForm form, std::string_view path) const {
  for (const ForeignFile& file : files_) {
    // The guides' own scripts borrow keys of the others, and TRL has Trainer's, as LLaMA-Factory.
    const bool shares = form == ForeignForm::kLlamaFactory &&
                        (file.form == ForeignForm::kTrl || file.form == ForeignForm::kTrainer);
    if (file.form != form && file.form != ForeignForm::kGuide && !shares) continue;
    for (const ForeignEntry& entry : file.entries)
      if (entry.path == path && !entry.is_null && !entry.is_code) return &entry;
  }
  return nullptr;
}

std::string Importer::word_of(ForeignForm form, std::string_view path) const {
  const ForeignEntry* entry = entry_of(form, path);
  return entry == nullptr || entry->values.empty() ? "" : entry->values.front();
}

bool Importer::is_on(ForeignForm form, std::string_view path) const {
  return config::parse_bool(word_of(form, path)).value_or(false);
}

const ForeignFile* Importer::file_of(ForeignForm form) const {
  for (const ForeignFile& file : files_)
    if (file.form == form) return &file;
  return nullptr;
}

const MappedKey* Importer::mapped(std::string_view ours) const {
  for (const MappedKey& item : result.mapped)
    if (item.ours == ours) return &item;
  return nullptr;
}

std::string Importer::word(const ForeignEntry& entry) const {
  if (entry.is_list || entry.values.size() != 1) wrong_value(entry, "one value", kCorrect);
  return entry.values.front();
}

bool Importer::flag(const ForeignEntry& entry) const {
  const std::optional<bool> value = config::parse_bool(word(entry));
  if (!value) wrong_value(entry, "true or false", kCorrect);
  return *value;
}

double Importer::number(const ForeignEntry& entry, double least, double most) const {
  const std::optional<double> value = config::parse_number<double>(word(entry));
  if (!value || !(*value >= least && *value <= most))
    wrong_value(entry, str("a number from ", least, " to ", most), kCorrect);
  return *value;
}

int64_t Importer::whole(const ForeignEntry& entry, int64_t least, int64_t most) const {
  const std::optional<int64_t> value = config::parse_number<int64_t>(word(entry));
  if (!value || *value < least || *value > most)
    wrong_value(entry, str("an integer from ", least, " to ", most), kCorrect);
  return *value;
}

}  // namespace octavo::migrate

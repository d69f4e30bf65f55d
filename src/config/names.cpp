#include "config/names.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "model_config/presets.h"

namespace octavo::config {
namespace {

// Small letters and digits alone: "FineWeb-Edu" and "fineweb_edu" are one name.
std::string letters_and_digits(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') letters += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) letters += c;
  }
  return letters;
}

bool is_here(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// "owner/name", "./corpus", "s3://…", "corpus.txt": nothing that the table could hold.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find_first_of("/.@:") == name.npos;
}

std::string nearest_dataset(const std::string& name) {
  std::vector<std::string_view> names;
  for (const DatasetName& known : dataset_names()) names.push_back(known.name);
  return nearest_name(name, names);
}

std::string nearest_model(const std::string& name) {
  std::vector<std::string> names;
  for (const std::string_view known : model_config::published_names())
    names.push_back(model_config::published(known)->name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return nearest_name(name, views);
}

std::string unknown_name(const std::string& key, const std::string& name,
                         const std::string& nearest) {
  return str(key, " ", name.substr(0, 80),
             ": no file or folder here, and no known name (octavo names lists them); ",
             nearest.empty() ? "" : "did you mean " + nearest + "? ",
             "It would be looked for on the Hugging Face hub");
}

void resolve_model_name(Parsed& parsed, Readers readers) {
  std::string& name = parsed.settings.model_name;
  if (!parsed.given("model_name") || model_config::is_built_in(name) || is_here(name)) return;
  if (const std::optional<std::string> hub = model_config::hub_name(name)) {
    if (readers & (reader::kTrain | reader::kPrepare))
      parsed.notes.push_back(str("model_name ", name, ": ", *hub, " on the Hugging Face hub"));
    parsed.derived["model_name"] = "known as " + name;
    name = *hub;
  } else if ((readers & reader::kConfig) && name.find('/') == name.npos) {
    parsed.notes.push_back(unknown_name("model_name", name, nearest_model(name)));
  }
}

// Others may have published it under the same name with a longer context.
bool is_its_owners(const std::string& name) {
  return std::ranges::any_of(model_config::published_names(), [&](std::string_view hub) {
    return name.starts_with(hub.substr(0, hub.find('/') + 1));
  });
}

// A known shape needs no network to say that samples are too long for it.
void check_context(Parsed& parsed) {
  const Settings& s = parsed.settings;
  if (!is_its_owners(s.model_name) || is_here(s.model_name)) return;
  const std::optional<model_config::Preset> known = model_config::published(s.model_name);
  if (!known || s.max_seq_length <= known->config.context) return;
  parsed.conflicts.push_back(str("max_seq_length ", s.max_seq_length, ": wanted at most ",
                                 known->config.context, ", the context of ", s.model_name,
                                 "; lower it"));
}

}  // namespace

// Hub names, subsets and splits as huggingface.co/datasets/NAME or published load_dataset() calls
// have them. sample-10BT is a sample of 10 billion tokens, the guides' length for FineWeb-Edu;
// train_1M is the split of OpenMathInstruct-2 that they name; main of GSM8K is its plain form.
std::span<const DatasetName> dataset_names() {
  static constexpr DatasetName kDatasets[] = {
      {"fineweb-edu", "HuggingFaceFW/fineweb-edu", "sample-10BT", "", "educational web, 10B"},
      {"fineweb", "HuggingFaceFW/fineweb", "sample-10BT", "", "web, 10B tokens"},
      {"openwebtext", "Skylion007/openwebtext", "", "", "GPT-2's data, remade"},
      {"tinyshakespeare", "karpathy/tiny_shakespeare", "", "", "1 MB of plays"},
      {"openmathinstruct-2", "nvidia/OpenMathInstruct-2", "", "train_1M", "a million problems"},
      {"gsm8k", "openai/gsm8k", "main", "", "school mathematics"},
      {"alpaca", "tatsu-lab/alpaca", "", "", "instructions"},
      {"hellaswag", "Rowan/hellaswag", "", "", "for eval_data"},
  };
  return kDatasets;
}

const DatasetName* find_dataset(std::string_view name) {
  if (!is_plain_name(std::string(name))) return nullptr;
  const std::string wanted = letters_and_digits(name);
  const auto known = dataset_names();
  const auto found = std::ranges::find_if(
      known, [&](const DatasetName& row) { return letters_and_digits(row.name) == wanted; });
  return found == known.end() ? nullptr : &*found;
}

std::vector<std::string> resolve_datasets(Settings& settings, bool subset_given, bool split_given) {
  std::vector<std::string> notes;
  for (std::string& name : settings.dataset) {
    const DatasetName* known = is_here(name) ? nullptr : find_dataset(name);
    if (known == nullptr) continue;
    std::string said = str("dataset ", name, ": ", known->hub, " on the Hugging Face hub");
    if (!known->subset.empty() && !subset_given) {
      settings.dataset_config = known->subset;
      said += str(", dataset_config ", known->subset);
    }
    if (!known->split.empty() && !split_given) {
      settings.split_name = known->split;
      said += str(", split_name ", known->split);
    }
    // Both keys hold for all data sets of a list.
    const bool needs = said.find(", ") != said.npos;
    if (needs && settings.dataset.size() > 1)
      fail(ExitCode::kUsage, "config", "dataset ", name, ": wanted it alone, found it among ",
           settings.dataset.size(), ", of which all would get its ",
           said.substr(said.find(", ") + 2), "; prepare each on its own (octavo data prepare ",
           name, " --output FOLDER) and train on the folders");
    notes.push_back(said);
    name = known->hub;
  }
  return notes;
}

void resolve_names(Parsed& parsed, Readers readers) {
  resolve_model_name(parsed, readers);
  check_context(parsed);
  const Settings before = parsed.settings;
  for (std::string& note : resolve_datasets(parsed.settings, parsed.given("dataset_config"),
                                            parsed.given("split_name")))
    if (readers & (reader::kTrain | reader::kPrepare | reader::kEval))
      parsed.notes.push_back(std::move(note));
  const Settings& s = parsed.settings;
  if (s.dataset != before.dataset)
    parsed.derived["dataset"] = "known as " + join(before.dataset, ", ");
  if (s.dataset_config != before.dataset_config)
    parsed.derived["dataset_config"] = "of " + join(before.dataset, ", ");
  if (s.split_name != before.split_name)
    parsed.derived["split_name"] = "of " + join(before.dataset, ", ");
  if (!(readers & reader::kConfig)) return;
  for (const std::string& name : s.dataset)
    if (is_plain_name(name) && !is_here(name))
      parsed.notes.push_back(unknown_name("dataset", name, nearest_dataset(name)));
}

}  // namespace octavo::config

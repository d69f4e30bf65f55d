#include "data/splits.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "config/names.h"
#include "data/s3_input.h"
#include "hub/hub.h"

namespace octavo::data {
namespace {

constexpr std::string_view kRowEndings[] = {".parquet", ".arrow", ".jsonl", ".json"};
constexpr std::string_view kSplitWords[] = {"train", "test", "validation", "valid", "val", "dev"};

// "train", "train.jsonl", "train-00000-of-00002.parquet", "test_1k"; not "training-notes".
bool is_split_name(std::string_view name) {
  return std::any_of(std::begin(kSplitWords), std::end(kSplitWords), [&](std::string_view word) {
    return name.starts_with(word) &&
           (name.size() == word.size() ||
            std::isalpha(static_cast<unsigned char>(name[word.size()])) == 0);
  });
}

// A missing "corpus.txt" is no name on the hub.
bool is_file_name(const std::string& input) {
  return input.ends_with(".txt") ||
         std::any_of(std::begin(kRowEndings), std::end(kRowEndings),
                     [&](std::string_view ending) { return input.ends_with(ending); });
}

// Whether rows lie in files or folders that are called like splits.
bool has_splits(const fs::path& folder) {
  constexpr int kMostFiles = 100'000, kDeepest = 4;
  int files = 0;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::end(at); ++at) {
    const std::string leaf = at->path().filename().string();
    if (at->is_directory() && (leaf.starts_with('.') || at.depth() >= kDeepest))
      at.disable_recursion_pending();
    if (++files > kMostFiles) return false;
    if (at->is_directory()) continue;
    const bool rows = std::any_of(std::begin(kRowEndings), std::end(kRowEndings),
                                  [&](std::string_view ending) { return leaf.ends_with(ending); });
    const std::string parent = at->path().parent_path().filename().string();
    if (rows && (is_split_name(leaf) || (at.depth() > 0 && is_split_name(parent)))) return true;
  }
  return false;
}

// The split that is there to validate on, if there is one.
std::optional<hub::Dataset> validation_of(const std::string& name, const std::string& trained,
                                          const std::string& asked, const hub::Options& options) {
  if (!asked.empty()) return hub::resolve_dataset(name, asked, options);
  for (const char* split : {"validation", "val", "valid", "dev"}) {
    if (trained == split) continue;
    try {
      return hub::resolve_dataset(name, split, options);
    } catch (const Error& error) {
      if (error.code() == ExitCode::kUsage) continue;  // no such split: the next one
      log_warn(str("data: no validation split of ", name, " can be had (", error.what(),
                   "); a part of the training data is taken instead (val_fraction)"));
      break;
    }
  }
  return std::nullopt;
}

// Text files one after another are one collection of documents, as a folder of them is.
void add_loose(const std::string& input, bool is_folder, SplitInputs& result) {
  const auto is_text = [](const fs::path& path) {
    return std::none_of(std::begin(kRowEndings), std::end(kRowEndings),
                        [&](std::string_view ending) { return path.string().ends_with(ending); });
  };
  const bool text = !is_folder && !is_s3_address(input) && is_text(input);
  const bool joins = text && !result.sets.empty() && result.sets.back().name.empty();
  if (!joins) result.sets.push_back({.name = {}, .inputs = 0, .val_inputs = 0, .val_split = {}});
  ++result.sets.back().inputs;
  result.inputs.emplace_back(input);
  if (!text) result.sets.back().name = fs::path(input).lexically_normal().filename().string();
  if (!text && result.sets.back().name.empty()) result.sets.back().name = input;
}

// The names of collections of text files, which grew until now.
void name_texts(SplitInputs& result) {
  size_t first = 0;
  for (InputSet& set : result.sets) {
    if (set.name.empty()) {
      set.name = result.inputs[first].filename().string();
      if (set.inputs > 1) set.name += " and " + counted(set.inputs - 1, "more file");
    }
    first += set.inputs;
  }
}

// A data set with splits.
void add_named(const config::Settings& settings, const std::string& input, SplitInputs& result) {
  const hub::Options options = hub::dataset_options(settings);
  const std::string split = settings.split_name.empty() ? "train" : settings.split_name;
  const hub::Dataset train = hub::resolve_dataset(input, split, options);
  result.inputs.insert(result.inputs.end(), train.files.begin(), train.files.end());
  InputSet set{.name = hub::is_hub_name(input) ? input : fs::path(input).filename().string(),
               .inputs = train.files.size(),
               .val_inputs = 0,
               .val_split = {}};
  if (set.name.empty()) set.name = input;
  std::string validation = str("the last ", settings.val_fraction, " of it");
  const std::string& asked = settings.val_split_name;
  if (settings.val_fraction == 0 && asked.empty()) {
    validation = "none";
  } else if (const auto found = validation_of(input, split, asked, options)) {
    result.validation.insert(result.validation.end(), found->files.begin(), found->files.end());
    set.val_inputs = found->files.size();
    set.val_split = found->split;
    validation = str("split ", found->split, " (", counted(found->files.size(), "file"), ")");
  }
  log_info(str("data: ", input, ": split ", split, " (", counted(train.files.size(), "file"),
               "); validation: ", validation));
  result.sets.push_back(std::move(set));
}

}  // namespace

SplitInputs resolve_inputs(const config::Settings& settings,
                           const std::vector<std::string>& inputs) {
  SplitInputs result;
  const std::string split = settings.split_name.empty() ? "train" : settings.split_name;
  if (settings.val_split_name == split)
    fail(ExitCode::kUsage, "data", "wanted a split to validate on that is not trained on, found '",
         split, "' for both; change val_split_name or split_name");
  for (const std::string& input : inputs) {
    const bool folder = !is_s3_address(input) && fs::is_directory(input);
    const bool wanted = !settings.split_name.empty() || !settings.val_split_name.empty();
    const bool layout = folder && (wanted || has_splits(input));
    const bool named = !is_s3_address(input) && !is_file_name(input) && hub::is_hub_name(input);
    if (layout || named) {
      add_named(settings, input, result);
      continue;
    }
    for (const auto& [key, value] : {std::pair("split_name", settings.split_name),
                                     std::pair("val_split_name", settings.val_split_name)})
      if (!value.empty())
        log_warn(
            str("data: ", key, " ", value, " is not used: ", input, " is no data set with splits"));
    add_loose(input, folder, result);
  }
  name_texts(result);
  return result;
}

fs::path benchmark_file(const config::Settings& settings, const std::string& key,
                        const std::string& name) {
  constexpr const char* kSplit = "validation";
  std::error_code none;
  if (fs::is_regular_file(name, none)) return name;
  const bool folder = fs::is_directory(name, none);
  const config::DatasetName* known = folder ? nullptr : config::find_dataset(name);
  const std::string repository = known != nullptr ? std::string(known->hub) : name;
  if (!folder && (is_file_name(name) || !hub::is_hub_name(repository)))
    fail(ExitCode::kUsage, "data", key, ": wanted a file of rows, or a name on the Hugging Face ",
         "hub, found ", name.empty() ? "none" : "no file " + name, "; give the name hellaswag, ",
         "which is fetched, or the path of hellaswag_val.jsonl");
  // Not dataset_options(): dataset_config is of the data that is trained on.
  const hub::Dataset found =
      hub::resolve_dataset(repository, kSplit, {.offline = settings.offline});
  if (found.files.size() != 1)
    fail(ExitCode::kUsage, "data", key, ": wanted split ", kSplit, " of ", repository,
         " in one file, found ", found.files.size(),
         "; name one of them: ", found.files.front().string());
  log_info(str(key, ": ", repository, ", split ", kSplit, " (",
               found.files.front().filename().string(), ")"));
  return found.files.front();
}

}  // namespace octavo::data

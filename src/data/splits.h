#pragma once
// Data sets by name and by split: what the user names becomes files to train and to validate on.

#include <filesystem>
#include <string>
#include <vector>

#include "config/settings.h"
#include "data/prepare.h"

namespace octavo::data {

struct SplitInputs {
  std::vector<std::filesystem::path> inputs;
  std::vector<std::filesystem::path> validation;
  std::vector<InputSet> sets;  // text files one after another are one; else one for each input
};

// Files, and folders of files, are themselves. A folder in the Hugging Face layout
// (data/train-00000-of-00002.parquet, train.jsonl, train/…), or a name on the hub, is its split
// split_name; its split val_split_name, or validation, val, valid or dev, becomes validation, which
// is said. A test split never does unless val_split_name says so. What has no such split holds out
// val_fraction of itself.
SplitInputs resolve_inputs(const config::Settings& settings,
                           const std::vector<std::string>& inputs);

// The file with the rows that a benchmark asks. A file is itself; a name that `octavo names` lists,
// another name on the hub, or a folder in the Hugging Face layout is the one file of its split
// validation, fetched where it is not in the cache. `key` names, in messages, who asks.
std::filesystem::path benchmark_file(const config::Settings& settings, const std::string& key,
                                     const std::string& name);

}  // namespace octavo::data

#pragma once
// Data sets by name and by split: what the user names becomes files to train and to validate on.

#include <filesystem>
#include <string>
#include <vector>

#include "config/settings.h"

namespace octavo::data {

struct SplitInputs {
  std::vector<std::filesystem::path> inputs;
  std::vector<std::filesystem::path> validation;  // none: val_fraction decides
};

// Files, and folders of files, are themselves. A folder in the Hugging Face layout
// (data/train-00000-of-00002.parquet, train.jsonl, train/…), or a name on the hub, is its split
// split_name; its validation, val or test split becomes validation, which is said.
SplitInputs resolve_inputs(const config::Settings& settings,
                           const std::vector<std::string>& inputs);

}  // namespace octavo::data

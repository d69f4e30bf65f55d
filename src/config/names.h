#pragma once
// Names that people know models and data sets by, and what the Hugging Face hub calls them. `octavo
// names` prints them; models are model_config/presets.h's.

#include <span>
#include <string_view>

#include "config/parse.h"

namespace octavo::config {

struct DatasetName {
  std::string_view name;    // as people type it
  std::string_view hub;     // what the hub calls it
  std::string_view subset;  // dataset_config, where the hub's default is not what is meant
  std::string_view split;   // split_name, likewise
  std::string_view about;
};
std::span<const DatasetName> dataset_names();
// In any spelling ("FineWeb-Edu", "fineweb_edu"), without an owner; null: not known.
const DatasetName* find_dataset(std::string_view name);

// What model_name and dataset name becomes what the hub calls it, unless a file or folder of that
// name is here. Each change is a note; who checks a configuration is told of names that nobody
// knows.
void resolve_names(Parsed& parsed, Readers readers);

// The same for data sets that stand on the command line by themselves; the notes about them.
std::vector<std::string> resolve_datasets(Settings& settings, bool subset_given, bool split_given);

}  // namespace octavo::config

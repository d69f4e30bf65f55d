#pragma once
// Configurations of other programs to our keys: LLaMA-Factory YAML, DeepSpeed JSON, the YAML of the
// guides' own scripts (our keys), and the variables of a launch script. Nothing of a file is lost:
// every entry ends in exactly one list of the report.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace octavo::migrate {

// A key of theirs that became one of our keys.
struct MappedKey {
  std::string where;               // "train.yaml:3", or "LLaMA-Factory's default"
  std::string theirs, from;        // their key and value
  std::string ours, to;            // our key and value, as YAML
  std::string note;                // how the meaning changes; "" when it does not
  bool is_default = false;         // not in the file: what theirs would have done
  std::vector<std::string> words;  // the value, to store it with our key
};

// Something that was wrong with the files.
struct Finding {
  enum class Verdict { kNote, kRepaired, kRefused };
  Verdict verdict = Verdict::kNote;
  std::string id;       // "fp32_communication"
  std::string where;    // "ds.json: communication_data_type"
  std::string problem;  // what is wrong
  std::string cost;     // what it costs, in one line
  std::string done;     // what import did, or what to do
};

// A key of theirs that none of our keys has.
struct UnmappedKey {
  std::string where, theirs, from;
  std::string ours;  // the name that it will have, when it is only not there yet
  std::string why;
};

struct Import {
  std::vector<std::string> files;  // "train.yaml: LLaMA-Factory"
  std::vector<MappedKey> mapped;
  std::vector<Finding> findings;
  std::vector<UnmappedKey> understood;  // not available in this version
  std::vector<UnmappedKey> dropped;     // no counterpart
  std::vector<UnmappedKey> unset;       // null, or "auto"
  config::Settings settings;
  bool is_refused() const;
};

// Reads the files, and the DeepSpeed JSON that a YAML names. Files that cannot be read, hold a key
// twice or a value of the wrong type are an Error (kUsage); what can be read and must not be
// trained is a finding kRefused.
Import import_files(std::span<const std::string> paths);

// The guides' scripts have short names for data sets of the hub (config/names.h).
struct HubDataset {
  std::string_view name, config, split;
};
std::optional<HubDataset> short_dataset(std::string_view name);

std::string import_yaml(const Import& import);  // the keys that were carried; parse() takes it
std::string import_text(const Import& import);
std::string import_json(const Import& import);
std::string import_tables();  // what maps to what, the tables of docs/reference/import-keys.md

}  // namespace octavo::migrate

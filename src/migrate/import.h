#pragma once
// Configurations of other programs to our keys: torchtitan's TOML and Python, Megatron's arguments,
// LLaMA-Factory, TRL and Accelerate YAML, Trainer's arguments, DeepSpeed and FSDP JSON, the YAML of
// the guides' own scripts (our keys), and the variables of a launch script. Nothing of a file is
// lost: every entry ends in exactly one list of the report.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"
#include "model_config/model_config.h"

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

// A model that a file describes by its sizes, and not by a name of the hub.
struct ImportedModel {
  model_config::ModelConfig config;
  std::string name;     // for people
  bool gated = true;    // SwiGLU
  std::string refusal;  // why train cannot run it; "": it can
};

// How theirs spreads a run over GPUs.
struct Parallelism {
  int64_t gpus = 0;  // 0: no file says
  int64_t tensor = 1, pipeline = 1, context = 1, expert = 1;
  int64_t replicate = 1, shard = 0;  // copies, and GPUs that share one; 0: all that are left
  bool is_assumed = false;           // the number of GPUs is a guess
  int64_t model_parallel() const { return tensor * pipeline * context; }
  int64_t data() const { return gpus / model_parallel(); }
};

struct Import {
  std::vector<std::string> files;  // "train.yaml: LLaMA-Factory"
  std::vector<MappedKey> mapped;
  std::vector<Finding> findings;
  std::vector<UnmappedKey> understood;  // not available in this version
  std::vector<UnmappedKey> dropped;     // no counterpart
  std::vector<UnmappedKey> unset;       // null, or "auto"
  config::Settings settings;
  std::optional<ImportedModel> model;  // nothing: model_name says it
  Parallelism parallel;
  // For forecasts: whose speed it is, as plan/calibration.cpp names it, and for people.
  std::string stack = "fused", program;
  bool recomputes_parts = false;  // selective activation checkpointing, which octavo has not
  bool is_refused() const;
};

// Reads the files, and the DeepSpeed JSON that a YAML names. Files that cannot be read, hold a key
// twice or a value of the wrong type are an Error (kUsage); what can be read and must not be
// trained is a finding kRefused. `gpus`: how many the run is started on, when somebody knows better
// than the files; 0: they say it.
Import import_files(std::span<const std::string> paths, int64_t gpus = 0);
// Whether the file is another program's and must be imported; octavo's own YAML, and what cannot be
// read, is not.
bool is_foreign(const std::string& path);

// The folder whose config.json describes Import::model, when model_name is one: "" when it is not.
inline constexpr std::string_view kModelFolder = "imported_model";
std::string model_folder(const Import& import);
void place_model(Import& import, const std::string& folder);
std::string model_json(const Import& import);  // that config.json

// The guides' scripts have short names for data sets of the hub (config/names.h).
struct HubDataset {
  std::string_view name, config, split;
};
std::optional<HubDataset> short_dataset(std::string_view name);

std::string import_yaml(const Import& import);  // the keys that were carried; parse() takes it
std::string import_text(const Import& import);
std::string import_json(const Import& import);
std::string import_summary(const Import& import);  // a few lines, for a forecast
std::string import_tables();  // what maps to what, the tables of docs/reference/import-keys.md

}  // namespace octavo::migrate

#pragma once
// Arguments and files to Settings: defaults, then CONFIG.yaml, then flags. The origin of every
// value is kept.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/key.h"

namespace octavo::config {

struct Origin {
  enum class Kind { kDefault, kFile, kFlag };
  Kind kind = Kind::kDefault;
  std::string file;
  int line = 0;
  std::string text() const;  // "default", "train.yaml:3", "flag"
};

struct Parsed {
  Settings settings;
  std::map<std::string, Origin> origins;  // by key name; only what was given
  std::vector<std::string> positionals;   // what is neither CONFIG.yaml nor a flag
  std::string config_file;                // "" when none was given
  // What other keys made of a key's value (resolve.h), by key name: "--mixed_precision bf16".
  std::map<std::string, std::string> derived;
  std::vector<std::string> notes;      // the same for the user: a line for each
  std::vector<std::string> defaults;   // that follow from the task or the model, and why
  std::vector<std::string> conflicts;  // between flags, or in the file: train refuses them
  std::optional<bool> file_is_fp8;     // what the file alone asks for, when it does
  Origin origin_of(const std::string& name) const;
  std::string source_of(const std::string& name) const;  // for people: what derived it, or origin
  bool given(const std::string& name) const { return origins.contains(name); }
};

// What a verb takes. Flags that it does not read are refused; a file may hold keys of every verb.
struct Arguments {
  std::string_view verb;
  Readers reader = reader::kAll;
  size_t max_positionals = 0;  // beside CONFIG.yaml
  bool takes_config = true;    // false: a .yaml is a positional as any other
};
inline constexpr Arguments kTrainArguments{"train", reader::kTrain};
inline constexpr Arguments kGenerateArguments{"generate", reader::kGenerate};
inline constexpr Arguments kEvalArguments{"eval", reader::kEval};
// These take every key that train reads: the command line of a run is theirs too.
inline constexpr Arguments kDiagnoseArguments{"diagnose", reader::kTrain | reader::kDiagnose};
inline constexpr Arguments kBenchArguments{"bench", reader::kTrain | reader::kBench};
inline constexpr Arguments kVerifyArguments{"verify", reader::kVerify};
// A word (list, verify) and a folder.
inline constexpr Arguments kCheckpointsArguments{"checkpoints", reader::kCheckpoints, 2};

// [CONFIG.yaml] [--key value | --key=value | --flag | --no_flag]…: mistakes are one Error (kUsage)
// that says of each what was wanted and found, a line each. Contradictions (rules.h) that concern
// the verb are refused too.
Parsed parse(std::span<const std::string> args, const Arguments& arguments = {});

// A file's text alone, as it stands: what keys mean together (resolve.h) is left open, since a run
// saved what it was resolved to. `source` names it in messages.
Parsed parse_text(std::string_view yaml, const std::string& source,
                  const Arguments& arguments = {});

// The flags of `flags` on top of `file`, resolved. Contradictions are refused.
Parsed with_flags(const Parsed& file, const Parsed& flags, const Arguments& arguments);

}  // namespace octavo::config

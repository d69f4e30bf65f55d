#pragma once
// Files of other programs as flat lists of entries.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::migrate {

enum class ForeignForm {
  kLlamaFactory,
  kDeepSpeed,
  kGuide,
  kVariables,
  kTrl,
  kAccelerate,
  kTrainer,
  kFsdp,
  kTorchtitan,
  kMegatron
};
inline constexpr size_t kForeignForms = 10;
std::string_view name_of(ForeignForm form);

struct ForeignEntry {
  std::string path;  // "zero_optimization.stage"
  std::vector<std::string> values;
  bool is_list = false, is_null = false;
  bool is_default = false;   // not in the file: what theirs would have done
  bool is_code = false;      // of a script: more than a literal, and not executed
  std::string where;         // "train.yaml:3", "ds.json"
  std::string text() const;  // the value, quoted and shortened for people; secrets are hidden
};

struct ForeignFile {
  ForeignForm form = ForeignForm::kGuide;
  std::string path, shown;  // shown: for people
  std::vector<ForeignEntry> entries;
  size_t other_lines = 0;  // of a script, that set no variable
};

// At most 1 MiB, 1000 keys, 16 levels; keys that appear twice are refused. Of a Python file with
// several configurations FILE.py:NAME is one.
ForeignFile read_foreign(const std::string& path);
// One more entry; refused when its name is there, or there are too many.
void add_entry(std::vector<ForeignEntry>& entries, ForeignEntry entry, const std::string& shown);

// Their name of an argument: num_layers, model.num_layers and --num-layers are num-layers.
std::string megatron_name(std::string_view path);

// Untrusted text for a terminal: control characters escaped, shortened to `most` bytes.
std::string shown_text(const std::string& text, size_t most = 80);
std::string shown_path(const std::string& path);
// A statement of a script, shortened; "(hidden)" when it may hold a password or a key.
std::string code_text(std::string_view text);

}  // namespace octavo::migrate

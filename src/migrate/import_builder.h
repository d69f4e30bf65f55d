#pragma once
// The tables of what maps to what, and the object that their conversions fill. Not for other
// modules: they take import.h.

#include <span>
#include <string>
#include <string_view>

#include "config/key.h"
#include "migrate/import.h"
#include "migrate/import_read.h"

namespace octavo::migrate {

class Importer;

// One key of theirs. The tables are also printed as docs/reference/import-keys.md.
struct Mapping {
  std::string_view theirs;  // "zero_optimization.stage"; "fp8.*" is all that begins so
  std::string_view ours;    // our keys, space-separated; "" when there is no counterpart
  std::string_view how;     // what changes; of a key without counterpart: why, and what it costs
  // nullptr: the value is carried as it is, or the entry is dropped when `ours` is "".
  void (*convert)(Importer& importer, const ForeignEntry& entry) = nullptr;
};

// What theirs does when the key is not in the file, where octavo would do something else.
struct ForeignDefault {
  std::string_view theirs, value;
};

std::span<const Mapping> llama_factory_mappings();
std::span<const Mapping> llama_factory_drops();  // keys without counterpart
std::span<const ForeignDefault> llama_factory_defaults();
std::span<const Mapping> deepspeed_mappings();
std::span<const Mapping> deepspeed_drops();
std::span<const Mapping> trl_mappings();  // of TRL alone; Trainer's are LLaMA-Factory's, too
std::span<const Mapping> trl_drops();
std::span<const ForeignDefault> trl_defaults();
bool is_trainer_key(std::string_view path);  // a key of Trainer that TRL passes on
std::span<const Mapping> accelerate_mappings();
std::span<const Mapping> accelerate_drops();
std::span<const Mapping> trainer_mappings();  // of Hugging Face's Trainer and its scripts alone
std::span<const Mapping> trainer_drops();
std::span<const ForeignDefault> trainer_defaults();
std::span<const Mapping> fsdp_mappings();
std::span<const Mapping> fsdp_drops();
std::span<const Mapping> torchtitan_mappings();
std::span<const Mapping> torchtitan_drops();
std::span<const ForeignDefault> torchtitan_defaults();
std::span<const Mapping> megatron_mappings();
std::span<const Mapping> megatron_drops();
std::span<const ForeignDefault> megatron_defaults();
const Mapping* find_mapping(ForeignForm form, std::string_view path);  // nullptr: none

// Names of the design that train does not read yet.
std::span<const std::string_view> planned_keys();
bool is_planned(std::string_view name);
// Our key, when train has it: a planned one may be there for octavo plan first.
const config::Key* available_key(std::string_view name);

class Importer {
 public:
  Import result;
  int64_t known_gpus = 0;  // 0: the files say it

  void add(ForeignFile file);
  void run();  // every entry of every file, then what only all of them together say

  // The value becomes our key's; or "understood" when this version has no such key. A value that
  // our key does not take is an Error that names the place.
  void map_to(const ForeignEntry& entry, std::string_view ours, std::vector<std::string> words,
              std::string_view note = "");
  void map_to(const ForeignEntry& entry, std::string_view ours, std::string word,
              std::string_view note = "") {
    map_to(entry, ours, std::vector{std::move(word)}, note);
  }
  void drop(const ForeignEntry& entry, std::string_view why);   // no counterpart
  void leave(const ForeignEntry& entry, std::string_view why);  // nothing to set
  void find(Finding::Verdict verdict, std::string id, const ForeignEntry& entry,
            const std::string& problem, std::string cost, std::string done);

  // The entry of a key of that program, given or its default; nullptr when there is none or it is
  // null.
  const ForeignEntry* entry_of(ForeignForm form, std::string_view path) const;
  std::string word_of(ForeignForm form, std::string_view path) const;  // "" when there is none
  bool is_on(ForeignForm form, std::string_view path) const;
  const ForeignFile* file_of(ForeignForm form) const;  // nullptr: none was given
  bool has(ForeignForm form) const { return file_of(form) != nullptr; }
  const MappedKey* mapped(std::string_view ours) const;

  // Readings of an entry; each is an Error when the value is not such a thing.
  std::string word(const ForeignEntry& entry) const;
  bool flag(const ForeignEntry& entry) const;
  double number(const ForeignEntry& entry, double least, double most) const;
  int64_t whole(const ForeignEntry& entry, int64_t least, int64_t most) const;

 private:
  void convert(const ForeignFile& file, const ForeignEntry& entry);
  void convert_guide(const ForeignEntry& entry);
  void add_defaults();
  bool store(MappedKey item);

  std::vector<ForeignFile> files_;
};

// What only all keys together say of the model, the GPUs and the batch.
void settle_torchtitan_model(Importer& importer);           // import_torchtitan_model.cpp
void settle_megatron_model(Importer& importer);             // import_megatron_model.cpp
void settle_parallelism(Importer& importer);                // import_parallelism.cpp
std::string parallelism_text(const Parallelism& parallel);  // "64 GPUs = 8 tensor x 8 data"
// A model of which only the sizes are known: a name of the hub when it is a published one.
void name_model(Importer& importer, const ForeignEntry& reason, ImportedModel model);

// What is wrong with several keys together; import_checks.cpp.
bool wants_fp8(const Importer& importer);
void check_batch_product(Importer& importer);
void check_lora_gain(Importer& importer);
void check_evaluation(Importer& importer);
void check_precision(Importer& importer);
void check_names(Importer& importer);
void check_variables(Importer& importer, std::span<const ForeignFile> files);

}  // namespace octavo::migrate

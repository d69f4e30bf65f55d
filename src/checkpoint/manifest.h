#pragma once
// manifest.json: what a checkpoint consists of (sealed_json.h). Private to this module.
//
// One process wrote it (version 1): the manifest lists the files, one for each group, with the
// hashes of their tensors. Several ranks did (version 2): the files of a group are
// model-00001-of-00004.safetensors and so on, each rank's files are described with their tensors in
// a list of its own (part-00001-of-00004.json, sealed too), and the manifest has all lists and
// files with sizes and hashes, and an index from tensors to the ranks whose files have their rows.
// So the manifest stays small, and who wants a few rows reads a few lists.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/pieces.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

inline constexpr int64_t kManifestVersion = 1, kPartsVersion = 2;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kShardSuffix = ".safetensors";
// Of `extra`: whose checkpoint it is. Older ones have no id.
inline constexpr const char* kRunName = "run_name";
inline constexpr const char* kRunId = "run_id";

struct ManifestFile {
  std::string name;  // a plain file name ending in .safetensors
  uint64_t size = 0;
  std::string hash;
  std::map<std::string, std::string> tensor_hashes;  // version 2: only in the rank's list
  std::string header_hash;                           // "" in checkpoints from before it was kept
  std::string group;
  int rank = 0;  // who wrote it
};

struct PartEntry {  // a rank's list, or any file by what can be checked of it
  std::string name, hash;
  uint64_t size = 0;
};

struct Manifest;
// Every file beside the manifest: the ranks' tensors and the ranks' lists.
std::vector<PartEntry> all_files(const Manifest& manifest);

using Index = std::map<std::string, std::map<std::string, TensorLocation>>;  // group, tensor

struct Manifest {
  int64_t step = 0;
  uint64_t tokens = 0;
  std::string precision, recipe, created;
  std::optional<double> val_loss;
  bool permanent = false;
  Json extra = Json::object();
  std::vector<ManifestFile> files;
  // Version 2 only:
  std::string save_id;           // of the save that made it
  std::vector<PartEntry> parts;  // by rank
  Index index;
  bool in_parts() const { return !parts.empty(); }
};

// The text of manifest.json; refuses what would not read back equal.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& source);
Manifest read_manifest(const fs::path& folder);

// A text of `extra`; "" when there is none.
std::string text_of(const Json& extra, const char* name);

// Whether a checkpoint that says so of itself belongs to another run than the one `extra` is of: by
// the ids, or when one of the two has none by the names.
bool is_of_another_run(const std::string& run, const std::string& run_id, const Json& extra);

// Whether retention leaves it alone: its save said so, or its step is a multiple of
// `permanent_every` (0: none is), as of one that was saved before that was asked for.
bool is_permanent(const Manifest& manifest, int64_t permanent_every);

// "" when a group or manifest may name a file so, else why not.
std::string file_name_problem(std::string_view name);

// A file's entry, in the manifest and in a rank's list.
Json file_entry(const ManifestFile& file);
ManifestFile parse_file_entry(const Json& entry, const std::string& source);

[[noreturn]] void fail_damaged(const fs::path& checkpoint,
                               const std::vector<std::string>& problems);

// "" when the file is there with its size, else the problem.
std::string size_problem(const fs::path& folder, const std::string& name, uint64_t size);

// The same of all files and lists of a checkpoint.
std::vector<std::string> size_problems(const fs::path& folder, const Manifest& manifest);

// Problems of one file against its entry, one line each, naming the damaged tensors. When there are
// none and `reader` is not null it receives the opened file.
std::vector<std::string> file_problems(const fs::path& folder, const ManifestFile& file,
                                       std::optional<SafetensorsReader>* reader);

}  // namespace octavo::checkpoint

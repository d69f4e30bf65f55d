#pragma once
// manifest.json: what a checkpoint consists of. Its first field is the hash of the rest of its own
// text, so that a flipped bit anywhere in it is seen. Private to this room.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

inline constexpr int64_t kManifestVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kShardSuffix = ".safetensors";

struct ManifestFile {
  std::string name;  // a plain file name ending in .safetensors
  uint64_t size = 0;
  std::string hash;
  std::map<std::string, std::string> tensor_hashes;
};

struct Manifest {
  int64_t step = 0;
  uint64_t tokens = 0;
  std::string precision, recipe, created;
  std::optional<double> val_loss;
  Json extra = Json::object();
  std::vector<ManifestFile> files;
};

// The text of manifest.json; refuses what would not read back equal (numbers that are not finite,
// strings that are not UTF-8).
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& source);
Manifest read_manifest(const fs::path& folder);

// "" when a group or manifest may name a file so, else why not.
std::string file_name_problem(std::string_view name);

// Problems of one file against its manifest entry, one line each, naming the damaged tensors. When
// there are none and `reader` is not null it receives the opened file.
std::vector<std::string> file_problems(const fs::path& folder, const ManifestFile& file,
                                       std::optional<SafetensorsReader>* reader);

}  // namespace octavo::checkpoint

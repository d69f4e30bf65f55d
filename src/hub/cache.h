#pragma once
// The cache folder of the Hugging Face tools, in their layout:
//   models--org--name/refs/main                    the commit that a branch stood at
//   models--org--name/blobs/<hash>                 contents, by git blob hash or SHA-256 (LFS)
//   models--org--name/snapshots/<commit>/<file>    links into blobs
//   models--org--name/trees/<commit>.json          all files of a commit (huggingface_hub 2)
//   .locks/models--org--name/<hash>.lock           held while a blob is fetched
// Links are followed only as long as they end inside the cache.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace octavo::hub {

enum class Kind { kModel, kDataset };

struct Repo {
  Kind kind = Kind::kModel;
  std::string id;        // "org/name", or "name" of the hub's first models
  std::string revision;  // branch, tag or commit
};

// "org/name" or "org/name@revision"; nothing when it cannot be a name on the hub.
std::optional<Repo> parse_repo(std::string_view name, Kind kind, std::string_view revision);
bool is_commit(std::string_view text);  // 40 lower-case hex digits
bool is_hex(std::string_view text, size_t digits);
// "" or why a file name from a server is refused: it must stay inside its folder.
std::string unsafe_name(std::string_view name);

class RepoCache {
 public:
  RepoCache(fs::path root, Repo repo);

  const Repo& repo() const { return repo_; }
  const fs::path& root() const { return root_; }
  fs::path folder() const { return root_ / folder_name_; }
  fs::path snapshot(const std::string& commit) const { return folder() / "snapshots" / commit; }
  fs::path blob(const std::string& hash) const { return folder() / "blobs" / hash; }
  fs::path lock(const std::string& hash) const;
  fs::path tree(const std::string& commit) const;

  // The commit that the revision stands for here.
  std::optional<std::string> commit() const;
  // A file of a snapshot, when it is there, whole and inside the cache.
  bool has(const std::string& commit, std::string_view name) const;
  // All names in a snapshot, sorted.
  std::vector<std::string> names(const std::string& commit) const;
  // Known not to exist in the repository (the tools keep such notes in .no_exist).
  bool known_absent(const std::string& commit, std::string_view name) const;

  void note_absent(const std::string& commit, std::string_view name) const;
  void link(const std::string& hash, const std::string& commit, std::string_view name) const;
  // Last of all: from now on the revision is found here.
  void write_ref(const std::string& commit) const;

 private:
  bool inside(const fs::path& path) const;

  fs::path root_;
  Repo repo_;
  std::string folder_name_;
};

// Names of repositories of this kind in a cache.
std::vector<std::string> cached_ids(const fs::path& root, Kind kind);

}  // namespace octavo::hub

#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace octavo::hub {
namespace {

constexpr size_t kMaxId = 96, kMaxRevision = 200, kMaxFileName = 1024;
constexpr size_t kMaxSnapshotFiles = 200'000;

std::string_view kind_prefix(Kind kind) {
  return kind == Kind::kModel ? "models--" : "datasets--";
}

bool is_word(std::string_view text, std::string_view more) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           more.find(c) != std::string_view::npos;
  });
}

// As the hub itself wants its names.
bool is_id(std::string_view id) {
  const size_t slash = id.find('/');
  if (id.size() > kMaxId || id.find("--") != std::string_view::npos ||
      id.find("..") != std::string_view::npos || id.ends_with(".git"))
    return false;
  const auto part = [](std::string_view text) {
    constexpr std::string_view kEdges = "-.";
    return is_word(text, "-._") && kEdges.find(text.front()) == std::string_view::npos &&
           kEdges.find(text.back()) == std::string_view::npos;
  };
  if (slash == std::string_view::npos) return part(id);
  return part(id.substr(0, slash)) && part(id.substr(slash + 1));
}

bool is_revision(std::string_view text) {
  return text.size() <= kMaxRevision && is_word(text, "-._/") && unsafe_name(text).empty();
}

}  // namespace

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_commit(std::string_view text) {
  return is_hex(text, 40);
}

std::string unsafe_name(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > kMaxFileName) return str("it is longer than ", kMaxFileName, " bytes");
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "it has a control character";
  for (const std::string& part : split(name, '/')) {
    if (part.empty()) return "it is absolute or has an empty part";
    if (part == "." || part == "..") return "it leaves its folder";
    if (part.size() > 255) return "a part of it is longer than 255 bytes";
  }
  return "";
}

std::optional<Repo> parse_repo(std::string_view name, Kind kind, std::string_view revision) {
  const size_t at = name.find('@');
  if (at != std::string_view::npos) revision = name.substr(at + 1);
  const std::string_view id = name.substr(0, at);
  if (!is_id(id) || !is_revision(revision)) return std::nullopt;
  return Repo{kind, std::string(id), std::string(revision)};
}

RepoCache::RepoCache(fs::path root, Repo repo) : root_(std::move(root)), repo_(std::move(repo)) {
  folder_name_ = kind_prefix(repo_.kind);
  for (const char c : repo_.id) folder_name_ += c == '/' ? "--" : std::string(1, c);
}

fs::path RepoCache::lock(const std::string& hash) const {
  return root_ / ".locks" / folder_name_ / (hash + ".lock");
}

fs::path RepoCache::tree(const std::string& commit) const {
  return folder() / "trees" / (commit + ".json");
}

bool RepoCache::inside(const fs::path& path) const {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return false;
  const fs::path root = fs::canonical(root_, error);
  if (error) return false;
  const auto [end, unused] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (end == root.end()) return true;
  log_warn(str("[hub] ", path.string(), " leads out of the cache ", root_.string(),
               " and is not followed; give the folder's path instead of its name"));
  return false;
}

std::optional<std::string> RepoCache::commit() const {
  if (is_commit(repo_.revision)) return repo_.revision;
  const fs::path ref = folder() / "refs" / repo_.revision;
  std::error_code error;
  if (!fs::is_regular_file(ref, error) || !inside(ref)) return std::nullopt;
  std::string text(trim(read_file(ref, 4096)));
  if (is_commit(text)) return text;
  log_warn(str("[hub] ", ref.string(),
               ": wanted a commit of 40 hex digits, found something else; "
               "the cache is taken as empty"));
  return std::nullopt;
}

bool RepoCache::has(const std::string& commit, std::string_view name) const {
  std::error_code error;
  const fs::path path = join_inside(snapshot(commit), name);
  return fs::is_regular_file(path, error) && inside(path);
}

std::vector<std::string> RepoCache::names(const std::string& commit) const {
  std::vector<std::string> found;
  const fs::path base = snapshot(commit);
  std::error_code error;
  if (!fs::is_directory(base, error) || !inside(base)) return found;
  // Folders are not entered through links: a link to a parent would never end.
  for (const auto& entry : fs::recursive_directory_iterator(base)) {
    if (!entry.is_regular_file(error) || !inside(entry.path())) continue;
    found.push_back(entry.path().lexically_relative(base).generic_string());
    if (found.size() > kMaxSnapshotFiles)
      fail(ExitCode::kDamaged, "hub", "wanted at most ", kMaxSnapshotFiles, " files in ",
           base.string(), ", found more; give a folder with the files that are meant");
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool RepoCache::known_absent(const std::string& commit, std::string_view name) const {
  std::error_code error;
  return fs::is_regular_file(join_inside(folder() / ".no_exist" / commit, name), error);
}

void RepoCache::note_absent(const std::string& commit, std::string_view name) const {
  const fs::path path = join_inside(folder() / ".no_exist" / commit, name);
  fs::create_directories(path.parent_path());
  write_file_atomic(path, "");
}

void RepoCache::link(const std::string& hash, const std::string& commit,
                     std::string_view name) const {
  const fs::path path = join_inside(snapshot(commit), name);
  fs::create_directories(path.parent_path());
  // A link that leads nowhere, or a file that another process is putting there, gives way at once.
  const fs::path beside = path.string() + ".tmp-" + std::to_string(::getpid());
  std::error_code error;
  fs::remove(beside, error);
  fs::create_symlink(blob(hash).lexically_relative(path.parent_path()), beside, error);
  if (!error) {
    fs::rename(beside, path);
    return;
  }
  log_warn(str("[hub] ", root_.string(), " takes no links (", error.message(),
               "); the file itself is put into the snapshot"));
  fs::rename(blob(hash), path);
}

void RepoCache::write_ref(const std::string& commit) const {
  if (is_commit(repo_.revision)) return;
  const fs::path ref = folder() / "refs" / repo_.revision;
  fs::create_directories(ref.parent_path());
  write_file_atomic(ref, commit);
}

std::vector<std::string> cached_ids(const fs::path& root, Kind kind) {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kind_prefix(kind))) continue;
    name.erase(0, kind_prefix(kind).size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
    ids.push_back(std::move(name));
  }
  return ids;
}

}  // namespace octavo::hub

#include "hub/listing.h"

#include <algorithm>

#include "base/error.h"
#include "hub/cache.h"

namespace octavo::hub {
namespace {

constexpr size_t kMaxFiles = 200'000, kMaxModelFiles = 2'000;
constexpr int64_t kMaxSize = int64_t{1} << 50;
constexpr uint64_t kMaxSmallFile = uint64_t{256} << 20;  // JSON that is read into memory

using Type = Json::value_t;

uint64_t checked_size(const Json& object, const char* name, const std::string& source) {
  const int64_t size = json_int(object, name, source);
  if (size < 0 || size > kMaxSize)
    fail(ExitCode::kDamaged, "hub", source, ": wanted a size of 0 to ", kMaxSize, " bytes, found ",
         size);
  return static_cast<uint64_t>(size);
}

std::string checked_hash(const Json& object, const char* name, size_t digits,
                         const std::string& source) {
  std::string hash = json_string(object, name, source);
  if (!is_hex(hash, digits))
    fail(ExitCode::kDamaged, "hub", source, ": field '", name, "': wanted ", digits,
         " hex digits, found something else");
  return hash;
}

void sort_and_check(Listing& listing, const std::string& source) {
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.name < b.name; });
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const std::string& name = listing.files[i].name;
    if (const std::string why = unsafe_name(name); !why.empty())
      fail(ExitCode::kDamaged, "hub", source, ": file name '", name.substr(0, 80),
           "' refused: ", why);
    if (i > 0 && name == listing.files[i - 1].name)
      fail(ExitCode::kDamaged, "hub", source, ": '", name.substr(0, 80), "' is listed twice");
  }
}

void check_count(size_t count, const std::string& source) {
  if (count > kMaxFiles)
    fail(ExitCode::kDamaged, "hub", source, ": wanted at most ", kMaxFiles, " files, found ",
         count);
}

bool is_small_part(const std::string& name) {
  return name.ends_with(".json") || name == "chat_template.jinja";
}

}  // namespace

Listing parse_listing(const Json& answer, const std::string& source) {
  Listing listing;
  listing.commit = checked_hash(answer, "sha", 40, source);
  const Json& siblings = json_field(answer, "siblings", Type::array, source);
  check_count(siblings.size(), source);
  for (const Json& entry : siblings) {
    RemoteFile file;
    file.name = json_string(entry, "rfilename", source);
    if (!entry.contains("blobId"))
      fail(ExitCode::kEnvironment, "hub", source,
           ": the server tells no hashes of its files, so nothing could be verified; use another "
           "HF_ENDPOINT, or fetch the files by other means and give their folder");
    file.blob_id = checked_hash(entry, "blobId", 40, source);
    file.lfs = entry.contains("lfs") && !entry["lfs"].is_null();
    const Json& holder = file.lfs ? json_field(entry, "lfs", Type::object, source) : entry;
    file.size = checked_size(holder, "size", source);
    file.hash = file.lfs ? checked_hash(holder, "sha256", 64, source) : file.blob_id;
    listing.files.push_back(std::move(file));
  }
  sort_and_check(listing, source);
  return listing;
}

Listing parse_tree(const Json& tree, const std::string& commit, const std::string& source) {
  Listing listing{.commit = commit, .files = {}};
  const Json& files = json_field(tree, "files", Type::object, source);
  check_count(files.size(), source);
  for (const auto& item : files.items()) {
    const Json& entry = item.value();
    RemoteFile file{.name = item.key()};
    file.blob_id = checked_hash(entry, "blob_id", 40, source);
    file.lfs = entry.contains("lfs_sha256");
    file.size = checked_size(entry, file.lfs ? "lfs_size" : "size", source);
    file.hash = file.lfs ? checked_hash(entry, "lfs_sha256", 64, source) : file.blob_id;
    listing.files.push_back(std::move(file));
  }
  sort_and_check(listing, source);
  return listing;
}

Json tree_of(const Listing& listing) {
  Json files = Json::object();
  for (const RemoteFile& file : listing.files) {
    Json entry = {{"size", file.size}, {"blob_id", file.blob_id}};
    if (file.lfs) {
      entry["lfs_sha256"] = file.hash;
      entry["lfs_size"] = file.size;
    }
    files[file.name] = std::move(entry);
  }
  return {{"format_version", 1}, {"files", std::move(files)}};
}

std::vector<RemoteFile> model_files(const Listing& listing, Parts parts, const std::string& id) {
  std::vector<RemoteFile> small, named, other;
  bool pickles = false;
  for (const RemoteFile& file : listing.files) {
    pickles |= file.name.ends_with(".bin") || file.name.ends_with(".pth");
    // Folders hold other formats: "original", "onnx", training states.
    if (file.name.find('/') != std::string::npos) continue;
    if (is_small_part(file.name)) {
      if (file.size > kMaxSmallFile)
        fail(ExitCode::kDamaged, "hub", id, ": ", file.name, ": wanted at most ", kMaxSmallFile,
             " bytes, found ", file.size);
      small.push_back(file);
    } else if (file.name.ends_with(".safetensors")) {
      // The same weights may be there twice, as "consolidated.safetensors" under other names.
      (file.name.starts_with("model") ? named : other).push_back(file);
    }
  }
  if (parts != Parts::kModel) return small;
  const std::vector<RemoteFile>& weights = named.empty() ? other : named;
  if (weights.empty())
    fail(ExitCode::kUsage, "hub", id, ": wanted weights as safetensors files, found ",
         pickles ? "pickles only, which can run any code and are never read" : "none",
         "; take another model, or convert it and give the folder");
  small.insert(small.end(), weights.begin(), weights.end());
  if (small.size() > kMaxModelFiles)
    fail(ExitCode::kDamaged, "hub", id, ": wanted a model of at most ", kMaxModelFiles,
         " files, found ", small.size(), "; give a folder with the files that are meant");
  return small;
}

}  // namespace octavo::hub

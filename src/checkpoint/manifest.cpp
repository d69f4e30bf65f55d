#include "checkpoint/manifest.h"

#include <cerrno>
#include <cstring>
#include <set>

#include "base/checked.h"
#include "base/error.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/index_json.h"
#include "checkpoint/part_list.h"
#include "checkpoint/sealed_json.h"

namespace octavo::checkpoint {

namespace {

std::vector<std::string> tensor_problems(const SafetensorsReader& reader,
                                         const ManifestFile& file) {
  std::vector<std::string> problems;
  for (const auto& item : file.tensor_hashes) {
    if (!reader.tensors().contains(item.first))
      problems.push_back(file.name + ": tensor " + quote_name(item.first) + " is missing");
    else if (hash_bytes(reader.tensor_bytes(item.first)) != item.second)
      problems.push_back(file.name + ": tensor " + quote_name(item.first) + " is damaged");
  }
  for (const auto& item : reader.tensors())
    if (!file.tensor_hashes.contains(item.first))
      problems.push_back(file.name + ": tensor " + quote_name(item.first) +
                         " is not in the manifest");
  return problems;
}

void write_parts(const Manifest& manifest, Json& json) {
  json["save_id"] = manifest.save_id;
  Json parts = Json::array();
  for (const PartEntry& part : manifest.parts)
    parts.push_back({{"name", part.name}, {"size", part.size}, {"hash", part.hash}});
  json["parts"] = parts;
  json["tensors"] = index_to_json(manifest.index);
}

void parse_parts(const Json& json, const std::string& source, Manifest& manifest) {
  manifest.save_id = label_field(json, "save_id", source);
  const Json& parts = json_field(json, "parts", Json::value_t::array, source);
  for (const Json& entry : parts) {
    PartEntry part{json_string(entry, "name", source), hash_field(entry, "hash", source),
                   unsigned_field(entry, "size", source)};
    const std::string wanted = part_name(manifest.parts.size(), parts.size());
    if (part.name != wanted)
      fail(ExitCode::kDamaged, "checkpoint", source, ": list name ", quote_name(part.name),
           " refused: wanted ", wanted);
    manifest.parts.push_back(std::move(part));
  }
  if (manifest.parts.empty())
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted the lists of the ranks, found none");
  for (const ManifestFile& file : manifest.files)
    if (static_cast<size_t>(file.rank) >= manifest.parts.size())
      fail(ExitCode::kDamaged, "checkpoint", source, ": file ", file.name, " is of rank ",
           file.rank, ", which has no list");
  manifest.index = index_from_json(json_field(json, "tensors", Json::value_t::object, source),
                                   manifest.parts.size(), source);
}

void parse_files(const Json& json, const std::string& source, Manifest& manifest) {
  std::set<std::string> names;
  uint64_t total = 0;
  for (const Json& entry : json_field(json, "files", Json::value_t::array, source)) {
    manifest.files.push_back(parse_file_entry(entry, source));
    total = checked_add(total, manifest.files.back().size, source + ": file sizes");
    if (!names.insert(manifest.files.back().name).second)
      fail(ExitCode::kDamaged, "checkpoint", source, ": file ", manifest.files.back().name,
           " is listed twice");
  }
}

}  // namespace

std::string text_of(const Json& extra, const char* name) {
  const auto found = extra.find(name);
  return found != extra.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<PartEntry> all_files(const Manifest& manifest) {
  std::vector<PartEntry> files;
  for (const ManifestFile& file : manifest.files)
    files.push_back({file.name, file.hash, file.size});
  files.insert(files.end(), manifest.parts.begin(), manifest.parts.end());
  return files;
}

bool is_of_another_run(const std::string& run, const std::string& run_id, const Json& extra) {
  const std::string own = text_of(extra, kRunName), own_id = text_of(extra, kRunId);
  if (!own_id.empty() && !run_id.empty()) return own_id != run_id;
  return !own.empty() && !run.empty() && own != run;
}

bool is_permanent(const Manifest& manifest, int64_t permanent_every) {
  return manifest.permanent || (permanent_every > 0 && manifest.step % permanent_every == 0);
}

std::string file_name_problem(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  if (name.empty() || name.size() > 200) return "wanted 1 to 200 characters";
  if (name.find_first_not_of(kAllowed) != std::string_view::npos)
    return "only letters, digits and _ - . are allowed";
  if (name.front() == '.' || name.find("..") != std::string_view::npos)
    return "it is hidden or leaves the folder";
  if (!name.ends_with(kShardSuffix)) return "wanted a name that ends in .safetensors";
  return "";
}

Json file_entry(const ManifestFile& file) {
  Json entry = {{"name", file.name},
                {"size", file.size},
                {"hash", file.hash},
                {"tensors", file.tensor_hashes.size()},
                {"tensor_hashes", file.tensor_hashes}};
  if (!file.header_hash.empty()) entry["header_hash"] = file.header_hash;
  if (file.group + kShardSuffix != file.name) {
    entry["group"] = file.group;
    entry["rank"] = file.rank;
  }
  return entry;
}

ManifestFile parse_file_entry(const Json& entry, const std::string& source) {
  ManifestFile file;
  file.name = json_string(entry, "name", source);
  std::string problem = file_name_problem(file.name);
  if (!problem.empty())
    fail(ExitCode::kDamaged, "checkpoint", source, ": file name ", quote_name(file.name),
         " refused: ", problem);
  file.size = unsigned_field(entry, "size", source);
  file.hash = hash_field(entry, "hash", source);
  const Json& hashes = json_field(entry, "tensor_hashes", Json::value_t::object, source);
  for (const auto& item : hashes.items())
    file.tensor_hashes[item.key()] = hash_field(hashes, item.key().c_str(), source);
  if (unsigned_field(entry, "tensors", source) != file.tensor_hashes.size())
    fail(ExitCode::kDamaged, "checkpoint", source, ": file ", file.name,
         ": the number of tensors and their hashes differ");
  if (entry.contains("header_hash")) file.header_hash = hash_field(entry, "header_hash", source);
  file.group = file.name.substr(0, file.name.size() - std::string_view(kShardSuffix).size());
  if (entry.contains("group")) {
    file.group = label_field(entry, "group", source);
    const uint64_t rank = unsigned_field(entry, "rank", source);
    if (rank > uint64_t{INT32_MAX} || !file_name_problem(file.group + kShardSuffix).empty())
      fail(ExitCode::kDamaged, "checkpoint", source, ": file ", file.name, ": group ",
           quote_name(file.group), " or rank ", rank, " refused");
    file.rank = static_cast<int>(rank);
  }
  return file;
}

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) files.push_back(file_entry(file));
  Json json = {{"version", manifest.in_parts() ? kPartsVersion : kManifestVersion},
               {"step", manifest.step},
               {"tokens", manifest.tokens},
               {"precision", manifest.precision},
               {"recipe", manifest.recipe},
               {"val_loss", manifest.val_loss ? Json(*manifest.val_loss) : Json()},
               {"created", manifest.created},
               {"extra", manifest.extra},
               {"files", files}};
  if (manifest.permanent) json["permanent"] = true;
  if (manifest.in_parts()) write_parts(manifest, json);
  return sealed_text(json, "manifest");
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  Json json = unsealed(text, source);
  int64_t version = json_int(json, "version", source);
  if (version != kManifestVersion && version != kPartsVersion)
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted manifest version ", kManifestVersion,
         " or ", kPartsVersion, ", found ", version,
         "; use the octavo that wrote it, or a newer one");
  Manifest manifest;
  manifest.step = json_int(json, "step", source);
  if (manifest.step < 0)
    fail(ExitCode::kDamaged, "checkpoint", source, ": step ", manifest.step, " is negative");
  manifest.tokens = unsigned_field(json, "tokens", source);
  manifest.precision = label_field(json, "precision", source);
  manifest.recipe = label_field(json, "recipe", source);
  manifest.created = label_field(json, "created", source);
  if (json.contains("val_loss") && json.at("val_loss").is_number())
    manifest.val_loss = json.at("val_loss").get<double>();
  manifest.permanent = json.value("permanent", Json()) == true;
  manifest.extra = json_field(json, "extra", Json::value_t::object, source);
  parse_files(json, source, manifest);
  if (version == kPartsVersion) parse_parts(json, source, manifest);
  return manifest;
}

Manifest read_manifest(const fs::path& folder) {
  fs::path path = folder / kManifestName;
  // Anything but a plain file: reading a pipe would wait for ever.
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)))
    fail(ExitCode::kDamaged, "checkpoint", folder.string(),
         ": wanted a finished checkpoint, found no manifest.json in it; take another one "
         "(`octavo checkpoints list`)");
  return parse_manifest(read_file(path, JsonLimits{}.max_bytes), path.string());
}

[[noreturn]] void fail_damaged(const fs::path& checkpoint,
                               const std::vector<std::string>& problems) {
  fail(ExitCode::kDamaged, "checkpoint", checkpoint.string(), " is damaged: ", join(problems, "; "),
       "; take another one (`octavo checkpoints list`)");
}

std::string size_problem(const fs::path& folder, const std::string& name, uint64_t wanted) {
  fs::path path = join_inside(folder, name);
  std::error_code unreadable;
  fs::file_status status = fs::symlink_status(path, unreadable);
  if (!fs::exists(status)) return name + ": missing";
  if (!fs::is_regular_file(status)) return name + ": not a plain file";
  uint64_t size = fs::file_size(path, unreadable);
  return size == wanted ? "" : str(name, ": wanted ", wanted, " bytes, found ", size);
}

std::vector<std::string> size_problems(const fs::path& folder, const Manifest& manifest) {
  std::vector<std::string> problems;
  const auto check = [&](const std::string& name, uint64_t size) {
    if (std::string problem = size_problem(folder, name, size); !problem.empty())
      problems.push_back(std::move(problem));
  };
  for (const PartEntry& file : all_files(manifest)) check(file.name, file.size);
  return problems;
}

std::vector<std::string> file_problems(const fs::path& folder, const ManifestFile& file,
                                       std::optional<SafetensorsReader>* reader) {
  if (std::string problem = size_problem(folder, file.name, file.size); !problem.empty())
    return {problem};
  try {
    // By read(2), which says when a sector cannot be read; through a mapping it would be SIGBUS.
    bool same = hash_file(join_inside(folder, file.name)) == file.hash;
    SafetensorsReader opened(join_inside(folder, file.name));
    auto problems = same && opened.tensors().size() == file.tensor_hashes.size()
                        ? std::vector<std::string>()
                        : tensor_problems(opened, file);
    if (!same && problems.empty())
      problems.push_back(file.name + ": its header is damaged, its tensors are whole");
    if (problems.empty() && reader != nullptr) reader->emplace(std::move(opened));
    return problems;
  } catch (const FailureError& error) {
    // A sector stays unreadable, and an older checkpoint may be whole; a server that is away
    // returns.
    const std::string_view what = error.what();
    if (!what.ends_with(std::strerror(EIO))) throw;
    return {str(file.name, ": cannot be read: ", what)};
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return {file.name + ": its header is damaged: " + error.what()};
  }
}

}  // namespace octavo::checkpoint

#include "checkpoint/manifest.h"

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::checkpoint {

namespace {

constexpr std::string_view kHashField = "{\n  \"manifest_hash\": \"";
constexpr size_t kHashDigits = 32;

bool is_hash(const std::string& text) {
  return text.size() == kHashDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string hash_text(std::string_view text) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

// Short strings of the manifest end up in tables on terminals.
std::string label(const Json& object, const char* name, const std::string& source) {
  std::string text = json_string(object, name, source);
  bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  if (text.size() > 64 || !printable)
    fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name,
         "': wanted at most 64 printable characters, found ", quote_name(text));
  return text;
}

uint64_t unsigned_field(const Json& object, const char* name, const std::string& source) {
  const Json& value = json_field(object, name, Json::value_t::number_integer, source);
  if (!value.is_number_unsigned())
    fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name,
         "' is negative: ", value.dump());
  return value.get<uint64_t>();
}

std::string hash_field(const Json& object, const char* name, const std::string& source) {
  std::string hash = json_string(object, name, source);
  if (!is_hash(hash))
    fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name,
         "' is not a hash: ", quote_name(hash));
  return hash;
}

ManifestFile parse_file(const Json& entry, const std::string& source) {
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
  return file;
}

// Takes the hash field off, checks it, and returns the text it was computed from.
std::string checked_body(std::string_view text, const std::string& source) {
  size_t rest = kHashField.size() + kHashDigits;
  if (!text.starts_with(kHashField) || text.substr(std::min(rest, text.size()), 3) != "\",\n")
    fail(ExitCode::kDamaged, "checkpoint", source,
         ": wanted a manifest that starts with its own hash, found something else; take another "
         "checkpoint (`octavo checkpoints list`)");
  std::string stated(text.substr(kHashField.size(), kHashDigits));
  std::string body = "{\n" + std::string(text.substr(rest + 3));
  std::string found = hash_text(body);
  if (stated != found)
    fail(ExitCode::kDamaged, "checkpoint", source, ": damaged: its hash should be ",
         quote_name(stated), ", its content gives ", found,
         "; take another checkpoint (`octavo checkpoints list`)");
  return body;
}

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

}  // namespace

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

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name},
                     {"size", file.size},
                     {"hash", file.hash},
                     {"tensors", file.tensor_hashes.size()},
                     {"tensor_hashes", file.tensor_hashes}});
  Json json = {{"version", kManifestVersion},
               {"step", manifest.step},
               {"tokens", manifest.tokens},
               {"precision", manifest.precision},
               {"recipe", manifest.recipe},
               {"val_loss", manifest.val_loss ? Json(*manifest.val_loss) : Json()},
               {"created", manifest.created},
               {"extra", manifest.extra},
               {"files", files}};
  std::string body;
  try {
    body = json.dump(2) + "\n";
  } catch (const Json::exception& error) {
    fail(ExitCode::kUsage, "checkpoint", "manifest: wanted UTF-8 strings (", error.what(),
         "); correct them before saving");
  }
  if (parse_json(body, "manifest to be written") != json)
    fail(ExitCode::kUsage, "checkpoint",
         "manifest: a number in `extra` is not finite and would not read back; "
         "store it as a string");
  std::string text = std::string(kHashField) + hash_text(body) + "\",\n" + body.substr(2);
  size_t limit = JsonLimits{}.max_bytes;
  if (text.size() > limit)
    fail(ExitCode::kUsage, "checkpoint", "manifest: ", text.size(), " bytes, at most ", limit,
         " can be read back; make `extra` smaller");
  return text;
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  Json json = parse_json(checked_body(text, source), source);
  int64_t version = json_int(json, "version", source);
  if (version != kManifestVersion)
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted manifest version ", kManifestVersion,
         ", found ", version, "; use the octavo that wrote it, or a newer one");
  Manifest manifest;
  manifest.step = json_int(json, "step", source);
  if (manifest.step < 0)
    fail(ExitCode::kDamaged, "checkpoint", source, ": step ", manifest.step, " is negative");
  manifest.tokens = unsigned_field(json, "tokens", source);
  manifest.precision = label(json, "precision", source);
  manifest.recipe = label(json, "recipe", source);
  manifest.created = label(json, "created", source);
  if (json.contains("val_loss") && json.at("val_loss").is_number())
    manifest.val_loss = json.at("val_loss").get<double>();
  manifest.extra = json_field(json, "extra", Json::value_t::object, source);
  std::set<std::string> names;
  uint64_t total = 0;
  for (const Json& entry : json_field(json, "files", Json::value_t::array, source)) {
    manifest.files.push_back(parse_file(entry, source));
    total = checked_add(total, manifest.files.back().size, source + ": file sizes");
    if (!names.insert(manifest.files.back().name).second)
      fail(ExitCode::kDamaged, "checkpoint", source, ": file ", manifest.files.back().name,
           " is listed twice");
  }
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

std::vector<std::string> file_problems(const fs::path& folder, const ManifestFile& file,
                                       std::optional<SafetensorsReader>* reader) {
  fs::path path = join_inside(folder, file.name);
  std::error_code unreadable;
  fs::file_status status = fs::symlink_status(path, unreadable);
  if (!fs::exists(status)) return {file.name + ": missing"};
  if (!fs::is_regular_file(status)) return {file.name + ": not a plain file"};
  uint64_t size = fs::file_size(path, unreadable);
  if (size != file.size) return {str(file.name, ": wanted ", file.size, " bytes, found ", size)};
  try {
    SafetensorsReader opened(path);
    bool same = hash_bytes(opened.bytes()) == file.hash;
    auto problems = same && opened.tensors().size() == file.tensor_hashes.size()
                        ? std::vector<std::string>()
                        : tensor_problems(opened, file);
    if (!same && problems.empty())
      problems.push_back(file.name + ": its header is damaged, its tensors are whole");
    if (problems.empty() && reader != nullptr) reader->emplace(std::move(opened));
    return problems;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    return {file.name + ": its header is damaged: " + error.what()};
  }
}

}  // namespace octavo::checkpoint

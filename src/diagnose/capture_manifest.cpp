#include "diagnose/capture_manifest.h"

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"

namespace octavo::diagnose {
namespace {

constexpr int64_t kGroup = 128;
constexpr int64_t kMostElements = int64_t{1} << 31;  // of a saved tensor
constexpr int64_t kLargestSize = int64_t{1} << 40;   // of a whole layer's side, and its tokens
constexpr size_t kMostLayers = 100'000;
constexpr size_t kLongestName = 512, kLongestText = 400;
constexpr JsonLimits kManifestLimits{.max_bytes = size_t{32} << 20, .max_depth = 6};
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

template <typename... Parts>
[[noreturn]] void refuse(const std::string& source, const Parts&... parts) {
  fail(ExitCode::kDamaged, "diagnose", source, ": ", str(parts...),
       "; capture the step again with octavo.capture");
}

// Printed, and pasted into programs: nothing in it may end a string or a line.
std::string plain_name(const Json& object, const char* field, const std::string& source) {
  std::string name = json_string(object, field, source);
  if (name.empty() || name.size() > kLongestName)
    refuse(source, "wanted 1 to ", kLongestName, " characters as ", field, ", found ", name.size());
  if (name.find_first_not_of(kNameCharacters) != std::string::npos)
    refuse(source, "wanted letters, digits and _ - . alone in a ", field);
  return name;
}

// Text for a terminal: what is not printable ASCII becomes a question mark.
std::string shown_text(const Json& object, const char* field, const std::string& source) {
  std::string text = json_string(object, field, source).substr(0, kLongestText);
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

int64_t size_field(const Json& object, const char* field, const std::string& source) {
  const int64_t size = json_int(object, field, source);
  if (size < 1 || size > kLargestSize)
    refuse(source, "wanted ", field, " from 1 to ", kLargestSize, ", found ", size);
  return size;
}

std::vector<int64_t> groups_field(const Json& object, const char* field, int64_t size,
                                  const std::string& source) {
  const int64_t groups = ceil_div(size, kGroup);
  std::vector<int64_t> list;
  for (const Json& entry : json_field(object, field, Json::value_t::array, source)) {
    const bool whole =
        entry.is_number_unsigned() && entry.get<uint64_t>() < static_cast<uint64_t>(groups);
    const int64_t group = whole ? entry.get<int64_t>() : -1;
    if (!whole || (!list.empty() && group <= list.back()))
      refuse(source, "wanted ", field, " as rising numbers below ", groups, ", found ",
             entry.dump().substr(0, 40));
    list.push_back(group);
  }
  if (list.empty()) refuse(source, "wanted at least one of ", field, ", found none");
  return list;
}

int64_t rows_in(const std::vector<int64_t>& groups, int64_t size) {
  const auto whole = static_cast<int64_t>(groups.size()) * kGroup;
  const bool has_last = !groups.empty() && groups.back() == ceil_div(size, kGroup) - 1;
  return whole - (has_last ? round_up(size, kGroup) - size : 0);
}

// "layer-00012.safetensors" and nothing else, so that no name leaves the folder.
std::string file_field(const Json& object, const std::string& source) {
  constexpr std::string_view kPrefix = "layer-", kSuffix = ".safetensors";
  std::string name = json_string(object, "file", source);
  const std::string_view view = name;
  const bool framed = view.starts_with(kPrefix) && view.ends_with(kSuffix) && view.size() <= 40 &&
                      view.size() > kPrefix.size() + kSuffix.size();
  const auto digits =
      framed ? view.substr(kPrefix.size(), view.size() - kPrefix.size() - kSuffix.size())
             : std::string_view();
  if (!framed || digits.find_first_not_of("0123456789") != std::string_view::npos)
    refuse(source, "wanted a file named layer-NUMBER.safetensors, found another name");
  return name;
}

CapturedLayer parse_layer(const Json& entry, const std::string& source) {
  CapturedLayer layer;
  layer.name = plain_name(entry, "name", source);
  const std::string where = source + ": layer " + layer.name;
  layer.kind = shown_text(entry, "class", where);
  layer.layout = json_string(entry, "layout", where);
  if (layer.layout != "out_in" && layer.layout != "in_out")
    refuse(where, "wanted layout out_in or in_out, found another");
  layer.file = file_field(entry, where);
  layer.outputs = size_field(entry, "outputs", where);
  layer.inputs = size_field(entry, "inputs", where);
  layer.tokens = size_field(entry, "tokens", where);
  layer.trainable = json_field(entry, "trainable", Json::value_t::boolean, where).get<bool>();
  if (entry.contains("tied_to") && !entry.at("tied_to").is_null())
    layer.tied_to = shown_text(entry, "tied_to", where);
  layer.token_groups = groups_field(entry, "token_groups", layer.tokens, where);
  layer.output_groups = groups_field(entry, "output_groups", layer.outputs, where);
  const auto check_size = [&](int64_t rows, int64_t columns) {
    const int64_t elements = checked_mul(rows, columns, where);
    if (elements > kMostElements)
      refuse(where, "a saved tensor of ", rows, " x ", columns, ", at most ", kMostElements,
             " elements are read; give octavo.capture fewer rows");
  };
  check_size(layer.saved_tokens(), layer.inputs);
  check_size(layer.saved_outputs(), layer.inputs);
  check_size(layer.saved_tokens(), layer.saved_outputs());
  return layer;
}

void parse_layers(const Json& json, const std::string& source, CaptureManifest& manifest) {
  const Json& layers = json_field(json, "layers", Json::value_t::array, source);
  if (layers.empty() || layers.size() > kMostLayers)
    refuse(source, "wanted 1 to ", kMostLayers, " layers, found ", layers.size());
  std::set<std::string> names, files;
  for (const Json& entry : layers) {
    manifest.layers.push_back(parse_layer(entry, source));
    const CapturedLayer& layer = manifest.layers.back();
    if (!names.insert(layer.name).second || !files.insert(layer.file).second)
      refuse(source, "layer ", layer.name, " or its file is listed twice");
  }
}

}  // namespace

int64_t CapturedLayer::saved_tokens() const {
  return rows_in(token_groups, tokens);
}

int64_t CapturedLayer::saved_outputs() const {
  return rows_in(output_groups, outputs);
}

CaptureManifest parse_capture(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source, kManifestLimits);
  if (json_string(json, "format", source) != "octavo-capture")
    refuse(source,
           "wanted the manifest of a capture (format octavo-capture), found something else");
  if (const int64_t version = json_int(json, "version", source); version != 1)
    refuse(source, "wanted version 1, found ", version);
  CaptureManifest manifest;
  manifest.model = shown_text(json, "model", source);
  manifest.torch_version = shown_text(json, "torch", source);
  if (json.contains("step") && !json.at("step").is_null())
    manifest.step = json_int(json, "step", source);
  parse_layers(json, source, manifest);
  const Json& others = json_field(json, "not_captured", Json::value_t::array, source);
  if (others.size() > kMostLayers)
    refuse(source, "wanted at most ", kMostLayers, " in not_captured, found ", others.size());
  for (const Json& entry : others)
    manifest.not_captured.push_back(
        {shown_text(entry, "name", source), shown_text(entry, "why", source)});
  return manifest;
}

CaptureManifest read_capture(const fs::path& folder) {
  const fs::path path = folder / kCaptureManifest;
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable))
    fail(ExitCode::kUsage, "diagnose", "wanted a folder that octavo.capture wrote, found no ",
         path.string(), "; a capture that was broken off has none");
  return parse_capture(read_file(path, kManifestLimits.max_bytes), path.string());
}

}  // namespace octavo::diagnose

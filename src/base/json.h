#pragma once
// Untrusted JSON: bounded in size and depth, duplicate keys refused, every error names the
// source.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"

namespace octavo {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;
};

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});
Json read_json(const fs::path& path, const JsonLimits& limits = {});

// Required field of a type; the message names the file, the field and what was found.
const Json& json_field(const Json& object, const char* name, Json::value_t type,
                       std::string_view source);
int64_t json_int(const Json& object, const char* name, std::string_view source);
std::string json_string(const Json& object, const char* name, std::string_view source);

}  // namespace octavo

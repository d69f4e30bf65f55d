#include "checkpoint/sealed_json.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

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

}  // namespace

std::string sealed_text(const Json& json, std::string_view what) {
  std::string body;
  try {
    body = json.dump(2) + "\n";
  } catch (const Json::exception& error) {
    fail(ExitCode::kUsage, "checkpoint", what, ": wanted UTF-8 strings (", error.what(),
         "); correct them before saving");
  }
  if (parse_json(body, str(what, " to be written")) != json)
    fail(ExitCode::kUsage, "checkpoint", what,
         ": a number in `extra` is not finite and would not read back; store it as a string");
  std::string text = std::string(kHashField) + hash_text(body) + "\",\n" + body.substr(2);
  size_t limit = JsonLimits{}.max_bytes;
  if (text.size() > limit)
    fail(ExitCode::kUsage, "checkpoint", what, ": ", text.size(), " bytes, at most ", limit,
         " can be read back; make `extra` smaller");
  return text;
}

Json unsealed(std::string_view text, const std::string& source) {
  return parse_json(checked_body(text, source), source);
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

std::string label_field(const Json& object, const char* name, const std::string& source) {
  std::string text = json_string(object, name, source);
  bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  if (text.size() > 64 || !printable)
    fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name,
         "': wanted at most 64 printable characters, found ", quote_name(text));
  return text;
}

std::vector<int64_t> shape_field(const Json& object, const char* name, const std::string& source) {
  const Json& list = json_field(object, name, Json::value_t::array, source);
  if (list.size() > kMaxDimensions)
    fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name, "': wanted at most ",
         kMaxDimensions, " sizes, found ", list.size());
  std::vector<int64_t> shape;
  int64_t product = 8;  // bytes of the largest element
  for (const Json& size : list) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{INT64_MAX})
      fail(ExitCode::kDamaged, "checkpoint", source, ": field '", name,
           "': wanted whole sizes >= 0, found ", quote_name(size.dump()));
    shape.push_back(size.get<int64_t>());
    product = checked_mul(product, std::max<int64_t>(shape.back(), 1), source + ": shape");
  }
  return shape;
}

at::ScalarType dtype_field(const Json& object, const char* name, const std::string& source) {
  const std::string dtype = json_string(object, name, source);
  const auto known = safetensors_dtype(dtype);
  if (!known)
    fail(ExitCode::kDamaged, "checkpoint", source, ": dtype ", quote_name(dtype), " is not known");
  return *known;
}

}  // namespace octavo::checkpoint

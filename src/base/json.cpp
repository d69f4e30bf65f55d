#include "base/json.h"

#include <set>

#include "base/error.h"

namespace octavo {
namespace {

// Builds the document through nlohmann's own DOM builder while refusing what it would accept
// silently.
class StrictHandler {
 public:
  StrictHandler(Json& result, const JsonLimits& limits) : builder_(result, true), limits_(limits) {}

  bool null() { return builder_.null(); }
  bool boolean(bool value) { return builder_.boolean(value); }
  bool number_integer(Json::number_integer_t value) { return builder_.number_integer(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return builder_.number_unsigned(value); }
  bool number_float(Json::number_float_t value, const std::string& text) {
    return builder_.number_float(value, text);
  }
  bool string(std::string& value) { return builder_.string(value); }
  bool binary(Json::binary_t& value) { return builder_.binary(value); }
  bool start_object(size_t size) {
    keys_.emplace_back();
    return enter() && builder_.start_object(size);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return builder_.end_object();
  }
  bool start_array(size_t size) { return enter() && builder_.start_array(size); }
  bool end_array() {
    --depth_;
    return builder_.end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) {
      error_ = "the key '" + name + "' appears twice";
      return false;
    }
    return builder_.key(name);
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    error_ = str("at byte ", position, ": ", error.what());
    return false;
  }
  const std::string& error() const { return error_; }

 private:
  bool enter() {
    if (++depth_ <= limits_.max_depth) return true;
    error_ = str("nested deeper than ", limits_.max_depth);
    return false;
  }

  nlohmann::detail::json_sax_dom_parser<Json> builder_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;
  int depth_ = 0;
  std::string error_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    fail(ExitCode::kDamaged, "base", source, ": JSON of ", text.size(), " bytes, at most ",
         limits.max_bytes, " are read");
  // nlohmann takes a NUL after the document for its end and would ignore what follows.
  if (text.find('\0') != std::string_view::npos)
    fail(ExitCode::kDamaged, "base", source, ": not acceptable JSON: it holds a NUL byte");
  Json result;
  StrictHandler handler(result, limits);
  if (!Json::sax_parse(text, &handler))
    fail(ExitCode::kDamaged, "base", source,
         ": not acceptable JSON: ", handler.error().empty() ? "malformed" : handler.error());
  return result;
}

Json read_json(const fs::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path.string(), limits);
}

const Json& json_field(const Json& object, const char* name, Json::value_t type,
                       std::string_view source) {
  if (!object.is_object() || !object.contains(name))
    fail(ExitCode::kDamaged, "base", source, ": wanted the field '", name, "', found none");
  const Json& value = object.at(name);
  const bool integer_wanted = type == Json::value_t::number_integer;
  if (integer_wanted ? !value.is_number_integer() : value.type() != type)
    fail(ExitCode::kDamaged, "base", source, ": field '", name, "' wanted as ",
         Json(type).type_name(), ", found ", value.type_name());
  return value;
}

int64_t json_int(const Json& object, const char* name, std::string_view source) {
  const Json& value = json_field(object, name, Json::value_t::number_integer, source);
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
    fail(ExitCode::kDamaged, "base", source, ": field '", name,
         "' is out of range: ", value.dump());
  return value.get<int64_t>();
}

std::string json_string(const Json& object, const char* name, std::string_view source) {
  return json_field(object, name, Json::value_t::string, source).get<std::string>();
}

}  // namespace octavo

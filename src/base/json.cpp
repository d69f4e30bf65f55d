#include "base/json.h"

#include "base/error.h"

namespace octavo {
namespace {

// Builds the document while refusing what nlohmann's own builder would accept silently.
class StrictHandler {
 public:
  StrictHandler(Json& result, const JsonLimits& limits) : root_(result), limits_(limits) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // no text has one
  bool start_object(size_t) { return enter(Json::value_t::object); }
  bool start_array(size_t) { return enter(Json::value_t::array); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& name) {
    const auto [place, is_new] =
        open_.back()->get_ref<Json::object_t&>().try_emplace(std::move(name));
    value_ = &place->second;
    if (!is_new) error_ = "the key '" + place->first + "' appears twice";
    return is_new;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    error_ = str("at byte ", position, ": ", error.what());
    return false;
  }
  const std::string& error() const { return error_; }

 private:
  // At the end of the open array, as the value of the last key, or as the whole document.
  bool put(Json value) {
    if (open_.empty())
      value_ = &root_;
    else if (open_.back()->is_array())
      value_ = &open_.back()->emplace_back();
    *value_ = std::move(value);
    return true;
  }
  bool enter(Json::value_t kind) {
    if (open_.size() >= static_cast<size_t>(limits_.max_depth)) {
      error_ = str("nested deeper than ", limits_.max_depth);
      return false;
    }
    put(kind);
    open_.push_back(value_);
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  const JsonLimits& limits_;
  std::vector<Json*> open_;  // arrays and objects, each inside the one before
  Json* value_ = nullptr;    // where the last value went, or the next one of an object goes
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
